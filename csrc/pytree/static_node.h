// Pytree nodes without children that hold a static part: partax.tree.FlatSpec, of a tree whose leaves are in
// dictionaries, and partax.tree.Static, of any value.
#pragma once

#include "base/python_api.h"
#include "pytree/tree_spec.h"

namespace partax {

// Adds the two types to the module.
void register_static_node_types(PyObject* module);

// A FlatSpec of a tree, which holds its values; `keys` are the paths of its leaves (a tuple), `separator` may be None.
Ref make_flat_spec(TreeSpec tree, Ref keys, Ref separator);

// The static part that a FlatSpec holds. Raises a TypeError for any other object.
const TreeSpec& loose_tree(PyObject* spec);

}  // namespace partax
