// Pytree nodes without children that hold a static part: partax.FlatSpec, of a tree whose leaves are in dictionaries,
// and partax.Static, of any value.
#pragma once

#include "base/python_api.h"
#include "tree/tree_spec.h"

namespace partax {

// Creates the two types and returns (FlatSpec, Static).
Ref register_static_node_types();

// (spec, a dictionary from path to leaf for each filter[, one for the rest]). Without `rest_is_static`, the last
// dictionary has what no filter takes; else the spec has it. `separator` may be null. Raises PythonError.
Ref flat_partition(PyObject* tree, PyObject* filters, PyObject* separator, bool rest_is_static, PyObject* is_leaf);
// The tree of a FlatSpec with the leaves of the dictionaries (a tuple of dicts).
Ref flat_combine(PyObject* spec, PyObject* dicts);

// The static part that a node holds, as it was when it was hashed, and as it is.
bool is_static_node(PyObject* object) noexcept;
const TreeSpec& sealed_tree(PyObject* node);
const TreeSpec& loose_tree(PyObject* node);

}  // namespace partax
