// Trees split by filters and put together again. All functions here raise PythonError, and those with `is_leaf` take
// None for it.
#pragma once

#include "base/python_api.h"

namespace partax {

// ---- Parts that are trees. `filters` and `trees` are tuples.

// (the trees, one for each filter and one for the rest, or the tree `only` of these unless that is -1; how many leaves
// are in each part).
Ref partition(PyObject* tree, PyObject* filters, PyObject* replace, PyObject* is_leaf, Py_ssize_t only);
// The first leaf that is not None, at each place of one or more `trees`.
Ref combine(PyObject* trees, PyObject* is_leaf);
// A list of pairs: each leaf of `tree`, and the leaf of `prefix` that covers it. `is_prefix_leaf` tells what counts as
// a leaf of the prefix.
Ref broadcast_prefix(PyObject* prefix, PyObject* tree, PyObject* is_prefix_leaf, const char* prefix_name,
                     const char* tree_name);

// ---- Parts that are dictionaries from path to leaf.

// (spec, a dictionary for each filter[, one for the rest]). Without `rest_is_static`, the last dictionary has what no
// filter takes; else the spec has it. `separator` may be None. Paths in errors begin with `name`.
Ref flat_partition(PyObject* tree, PyObject* filters, PyObject* separator, bool rest_is_static, PyObject* is_leaf,
                   const std::string& name);

// ---- The leaves and the structure of a tree.

// (the leaves, a FlatSpec without keys).
Ref tree_flatten(PyObject* tree, PyObject* is_leaf);
// The tree of a FlatSpec with the leaves of a list.
Ref tree_unflatten(PyObject* spec, PyObject* leaves);
// Whether the structures of two FlatSpecs are alike, with static values that are equal by `==`.
bool have_equal_structures(PyObject* spec, PyObject* other);

}  // namespace partax
