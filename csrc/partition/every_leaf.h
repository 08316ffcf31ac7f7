// What is done with every leaf of trees, as the functions of jax.tree do it.
#pragma once

#include "base/python_api.h"

namespace partax {

// All functions here raise PythonError. `is_leaf` may be None.
//
// The leaves, a list.
Ref tree_leaves(PyObject* tree, PyObject* is_leaf);
// (the leaves, a Structure).
Ref tree_flatten(PyObject* tree, PyObject* is_leaf);
Ref tree_structure(PyObject* tree, PyObject* is_leaf);
// The first of `trees` (a tuple) with `function` of its leaves, and of what the others have in their places; with paths
// as first arguments, if wanted.
Ref tree_map(PyObject* function, PyObject* trees, PyObject* is_leaf, bool with_path);
// Where the objects of `targets` (a tuple) are in a tree; each of them counts as a leaf, and so does each empty tuple,
// if wanted. Gives (the leaves, a Structure, [(index of a leaf, index of a target)]).
Ref tree_find(PyObject* tree, PyObject* targets, PyObject* is_leaf, bool empty_tuples);

}  // namespace partax
