// Splitting a tree into parts by filters, joining parts, spreading a prefix over a tree.
#pragma once

#include <utility>

#include "base/python_api.h"

namespace partax {

struct Partition {
  Ref trees;                        // a tuple: one for each filter and one for the rest
  std::vector<std::size_t> counts;  // of the leaves in each
};
// All functions here raise PythonError.
Partition partition(PyObject* tree, PyObject* filters, PyObject* replace, PyObject* is_leaf);
// What one filter takes, or (inverse) what it leaves; and how many leaves it takes.
std::pair<Ref, std::size_t> filter(PyObject* tree, PyObject* filter_spec, bool inverse, PyObject* replace,
                                   PyObject* is_leaf);
// The first leaf that is not None, at each place of `trees` (a tuple).
Ref combine(PyObject* trees, PyObject* is_leaf);
// A list of pairs: each leaf of `tree`, and the leaf of `prefix` that covers it. `is_prefix_leaf` tells what counts as
// a leaf of the prefix.
Ref broadcast_prefix(PyObject* prefix, PyObject* tree, PyObject* is_prefix_leaf, const char* prefix_name,
                     const char* tree_name);

}  // namespace partax
