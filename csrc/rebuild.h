// Spec and leaves -> object.
#pragma once

#include "python_api.h"
#include "tree_spec.h"

namespace partax {

// Where rebuilt leaves come from.
class LeafSource {
 public:
  virtual ~LeafSource() = default;
  // The leaf at `index` of the dynamic leaves, as a new reference.
  virtual Ref leaf(std::size_t index) = 0;
};

// Exactly what jax.tree.unflatten would give. The spec must hold its values (loose or handed out) and its treedefs.
// Raises PythonError.
Ref rebuild(const TreeSpec& spec, LeafSource& leaves);
// The children of a kCall spec.
std::vector<Ref> rebuild_call(const TreeSpec& spec, LeafSource& leaves);

}  // namespace partax
