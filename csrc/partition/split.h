// Which filter takes each leaf of a tree.
#pragma once

#include <memory>

#include "base/python_api.h"
#include "tree/leaf_buffer.h"
#include "tree/tree_spec.h"

namespace partax {

// A tree taken apart. Leaves that have no part are static values of the spec.
struct SplitTree {
  TreeSpec spec;
  LeafBuffer leaves;
  std::vector<std::uint32_t> part;  // of each leaf: the filter's index, or the number of filters
  Ref keys;                         // of each leaf, a tuple; where asked for
};

// `filters` is a tuple, `is_leaf` a callable (node) -> bool or None. A `separator` makes keys: what joins their
// segments, or None for the form of jax.tree_util.keystr; the leaves that no filter matches may then stay in the spec.
// Errors are WalkErrors with the path below the tree's root.
std::unique_ptr<SplitTree> split(PyObject* tree, PyObject* filters, PyObject* is_leaf, PyObject* separator = nullptr,
                                 bool rest_is_static = false);

}  // namespace partax
