// jax's and optree's flatten, called from the same program.
#pragma once

#include <unordered_set>
#include <vector>

#include "base/python_api.h"
#include "trees.h"

namespace partax::bench {

class Peers {
 public:
  Peers();

  // Registers "jax_flatten/<tree>" and "optree_flatten/<tree>"; this and `trees` have to outlive the benchmarks.
  void register_flatten(const std::vector<Tree>& trees);

 private:
  void teach_optree(const Tree& tree);
  Ref flatten_with_jax(const Tree& tree) const;
  Ref flatten_with_optree(const Tree& tree) const;

  std::unordered_set<const PyTypeObject*> taught_;  // module types that optree knows
  Ref registry_;                                    // jax's default one
  Ref jax_flatten_;
  Ref optree_flatten_;
  Ref optree_keywords_;   // ("namespace",)
  Ref optree_namespace_;  // where optree knows Equinox modules
};

}  // namespace partax::bench
