// The structure of a tree, all of whose leaves are elsewhere: partax.tree.Structure, and flattening into one.
#pragma once

#include "base/python_api.h"
#include "partition/one_level.h"

namespace partax {

void register_structure_type(PyObject* module);

// A Structure of a tree, which holds its static values.
Ref make_structure(TreeSpec tree);

// As every_leaf, with long rows of leaves as one node.
FlattenOptions in_runs(PyObject* is_leaf);
// The tree of this structure with these leaves, any iterable. Raises PythonError.
Ref unflatten(PyObject* structure, PyObject* leaves);

}  // namespace partax
