// The names in a tree, from which Python builds the paths of its leaves.
#pragma once

#include "base/python_api.h"
#include "tree/tree_spec.h"

namespace partax {

inline bool is_leaf_kind(Kind kind) noexcept { return kind == Kind::kDynamicLeaf || kind == Kind::kDynamicRun; }

// The nodes of a tree, given in order, by their index in the spec; null for leaves.
std::vector<PyObject*> nodes_by_index(const TreeSpec& spec, const std::vector<Ref>& nodes);
// The rows that partax._pytree.paths takes, a tuple; without static leaves.
Ref path_rows(const TreeSpec& spec, const std::vector<PyObject*>& nodes);

}  // namespace partax
