// One level of a tree: a node and its children, beside the same level of another tree.
#pragma once

#include "flatten.h"
#include "python_api.h"

namespace partax {

struct Flat {
  TreeSpec spec;
  LeafBuffer leaves;
};

// Flattens with errors as WalkErrors, whatever raises.
void flatten_into(Flat& flat, PyObject* tree, const FlattenOptions& options);

// Every leaf counts, nothing is hashed, the spec can be rebuilt.
FlattenOptions every_leaf(PyObject* is_leaf);
// The same, with the children of the root for leaves.
FlattenOptions children_only();

bool is_node(PyObject* object);
// The truth of `callable(argument)`; `doing` is for the note on an exception.
bool is_truthy(PyObject* callable, PyObject* argument, const char* doing);

// Opens one level of `object`, which must have the structure that `prefix` has there.
void open_alike(const Flat& prefix, PyObject* object, Flat& level, const char* what);
// The path segment of a child of an opened level.
std::string child_segment(const Flat& level, std::size_t child);

}  // namespace partax
