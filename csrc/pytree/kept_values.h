// The values that a call has in common with an earlier one, as that was matched: they are not looked at again.
#pragma once

#include "pytree/leaf_buffer.h"
#include "pytree/tree_spec.h"

namespace partax {

struct KeptValues {
  // One value of a call, or a run of static ones, which is not kept.
  struct Part : SpecPart {
    std::size_t first_leaf, num_leaves;
    bool is_kept;
  };

  // `is_kept` has a flag for each value of the key's calls.
  KeptValues(const TreeSpec& key, const std::vector<bool>& is_kept, const LeafBuffer& match) : leaves(match) {
    for (std::size_t node = 1, leaf = 0; node < key.nodes.size(); node = parts.back().end_node) {
      const bool is_run = key.nodes[node].kind == Kind::kStaticRun;
      Part part{key.part(node), leaf, 0, !is_run && is_kept[parts.size()]};
      for (; node < part.end_node; ++node) leaf += key.nodes[node].kind == Kind::kDynamicLeaf ? 1 : 0;
      part.num_leaves = leaf - part.first_leaf;
      parts.resize(parts.size() + (is_run ? key.nodes[part.first_node].arity : 1), part);
    }
  }

  std::vector<Part> parts;  // by value
  LeafBuffer leaves;        // of the earlier match
};

}  // namespace partax
