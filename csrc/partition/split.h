// Which filter takes each leaf of a tree.
#pragma once

#include "partition/flat.h"

namespace partax {

// A tree taken apart by filters, a tuple. Errors are WalkErrors with the path below the tree's root.
struct SplitTree : Flat {
  SplitTree(PyObject* tree, PyObject* filters, IsLeaf is_leaf);

  // Makes the leaves that no filter takes static values.
  void make_rest_static();

  std::uint32_t rest;               // the number of filters
  std::vector<std::uint32_t> part;  // of each leaf: the filter's index, or `rest`
};

}  // namespace partax
