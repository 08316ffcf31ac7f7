// The structure of a tree, all of whose leaves are elsewhere: partax.tree.Structure, and flattening into one.
#pragma once

#include "base/python_api.h"
#include "partition/one_level.h"

namespace partax {

// Creates the type.
Ref register_structure_type();

// A Structure of a tree, which holds its static values.
Ref make_structure(TreeSpec tree);
bool is_structure(PyObject* object) noexcept;
const TreeSpec& tree_of_structure(PyObject* structure);

// As every_leaf, with long rows of leaves as one node.
FlattenOptions in_runs(PyObject* is_leaf);
// The tree of this structure with these leaves, any iterable. Raises PythonError.
Ref unflatten(PyObject* structure, PyObject* leaves);
// The tree of this spec with these leaves, as many as it has, which somebody keeps.
Ref with_leaves(const TreeSpec& spec, PyObject* const* leaves);

}  // namespace partax
