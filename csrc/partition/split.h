// Which filter takes each leaf of a tree, decided while the tree is flattened.
#pragma once

#include "base/python_api.h"
#include "tree/leaf_buffer.h"
#include "tree/tree_spec.h"

namespace partax {

// A tree taken apart. Leaves that have no part are static values of the spec.
struct SplitTree {
  TreeSpec spec;
  LeafBuffer leaves;
  std::vector<std::uint32_t> part;  // of each leaf: the filter's index, or the number of filters
  std::vector<Ref> keys;            // of each leaf, where asked for
};

struct SplitOptions {
  PyObject* is_leaf = nullptr;             // callable (node) -> bool, or null
  bool rest_is_static = false;             // what no filter takes stays in the spec
  bool keyed = false;                      // make keys
  const std::string* separator = nullptr;  // of the keys' segments; null for the form of jax.tree_util.keystr
};

// `filters` is a tuple. Errors are WalkErrors with the path below the tree's root.
void split(SplitTree& result, PyObject* tree, PyObject* filters, const SplitOptions& options);

}  // namespace partax
