// Splitting a tree by a predicate or a prefix of them, and putting the parts together again.
#pragma once

#include "python_api.h"

namespace partax {

// (taken, rest): the tree twice, with `replace` for the leaves that are not taken. `is_leaf` may be null.
Ref partition(PyObject* tree, PyObject* filter_spec, PyObject* replace, PyObject* is_leaf, const char* argument);
// Only one of both.
Ref filter(PyObject* tree, PyObject* filter_spec, bool inverse, PyObject* replace, PyObject* is_leaf);
// The first of the leaves at each place that is not None.
Ref combine(PyObject* trees, PyObject* is_leaf);
// The value of `prefix` for each leaf of `tree`, as a list. `is_prefix_leaf` tells the prefix's leaves apart.
Ref broadcast_prefix(PyObject* prefix, PyObject* tree, PyObject* is_prefix_leaf, const char* prefix_name,
                     const char* tree_name);

}  // namespace partax
