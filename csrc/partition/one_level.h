// One level of a tree: a node and its children, compared with the same level of another tree.
#pragma once

#include "base/python_api.h"
#include "tree/flatten.h"

namespace partax {

struct Flat {
  TreeSpec spec;
  LeafBuffer leaves;
};

// Flattens with errors as WalkErrors, whatever raises.
void flatten_into(Flat& flat, PyObject* tree, const FlattenOptions& options);

// Every leaf counts, nothing is hashed, the spec can be rebuilt. `is_leaf` may be None.
FlattenOptions every_leaf(PyObject* is_leaf);
// The same, with the children of the root for leaves.
FlattenOptions children_only();

bool is_node(PyObject* object);

// Two trees side by side are alike where their nodes are, and where their keys, static fields and aux data are equal by
// `==`, as for jax: a program may see which of them it gets, so whoever joins trees says which.

// Whether the trees are alike; raises a WalkError without a path if an `==` raises.
bool are_alike(const TreeSpec& a, const TreeSpec& b);
// Raises a WalkError if the static values of nodes that are alike differ: with the path below `tree`, which was
// flattened by `options` into `actual`. `expected` is of `what`.
void check_equal_statics(const TreeSpec& expected, const TreeSpec& actual, PyObject* tree,
                         const FlattenOptions& options, const std::string& what);
// Opens one level of `object`, which must be like `prefix`.
void open_alike(const Flat& prefix, PyObject* object, Flat& level, const std::string& what);

}  // namespace partax
