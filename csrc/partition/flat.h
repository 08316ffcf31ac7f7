// A tree whose leaves are all dynamic, and trees side by side: they are alike if their nodes are, and if their keys,
// static fields and aux data are equal by `==`, as in jax. A program may see which of them it gets, so whoever joins
// trees decides which.
#pragma once

#include <functional>

#include "pytree/flatten.h"

namespace partax {

using IsLeaf = std::function<bool(PyObject*)>;

// Of a callable (object) -> bool, or None.
IsLeaf is_leaf_of(PyObject* callable);

struct Flat {
  // The spec can be rebuilt. Errors are WalkErrors, whatever raises.
  explicit Flat(PyObject* tree, IsLeaf is_leaf = {});

  // What Python makes the paths of the nodes and leaves from.
  Ref names() const;
  // The path of a node below the root, as jax writes it.
  std::string path(std::size_t node) const;

  TreeSpec spec;
  LeafBuffer leaves;
  std::vector<Ref> objects;  // of each node of the spec, leaves included
};

// Whether all nodes are alike; raises a WalkError without a path if an `==` raises.
bool are_alike(const TreeSpec& a, const TreeSpec& b);
// Raises a WalkError with a path below the root of `actual` if its node is not like the node of `expected`, which is
// not a leaf, and of `what`.
void check_alike(const Flat& expected, std::size_t expected_node, const Flat& actual, std::size_t node,
                 const std::string& what);

}  // namespace partax
