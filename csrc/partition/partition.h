// Splitting a tree into parts by filters, joining parts, spreading a prefix over a tree.
#pragma once

#include "base/python_api.h"

namespace partax {

// All functions here raise PythonError. `filters` and `trees` are tuples, `is_leaf` may be None.
//
// (the trees, one for each filter and one for the rest; how many leaves are in each).
Ref partition(PyObject* tree, PyObject* filters, PyObject* replace, PyObject* is_leaf);
// What one filter takes, or (inverse) what it leaves; and how many leaves it takes.
Ref filter(PyObject* tree, PyObject* filter_spec, bool inverse, PyObject* replace, PyObject* is_leaf);
// The first leaf that is not None, at each place of `trees`.
Ref combine(PyObject* trees, PyObject* is_leaf);
// A list of pairs: each leaf of `tree`, and the leaf of `prefix` that covers it. `is_prefix_leaf` tells what counts as
// a leaf of the prefix.
Ref broadcast_prefix(PyObject* prefix, PyObject* tree, PyObject* is_prefix_leaf, const char* prefix_name,
                     const char* tree_name);

}  // namespace partax
