// Spec and leaves -> object.
#pragma once

#include "base/python_api.h"
#include "pytree/leaf_buffer.h"
#include "pytree/tree_spec.h"

namespace partax {

// A node of a result that is a node of an argument: no field of it can change, and all of its contents are the
// argument's.
struct PassthroughNode {
  std::uint32_t node;        // in the key
  std::uint32_t first_leaf;  // of the call's leaves
  std::uint32_t leaf_count;
};

// The parts of a call's arguments, in addition to its leaves, that its result may reuse.
struct InputReuse {
  const LeafBuffer& call;
  const std::vector<PassthroughNode>& nodes;  // of those of the spec that are such, in order
  // For each static value of the spec the index in the key of the call's own, or below 0 where it is the spec's. Empty
  // if all are.
  const std::vector<std::int32_t>& statics;
};

// Exactly what jax.tree.unflatten would give of these leaves, which somebody keeps; of a kCall spec a tuple of the
// values. The spec must hold its values (loose or handed out). Raises PythonError.
Ref rebuild(const TreeSpec& spec, PyObject* const* leaves, std::size_t count, const InputReuse* reuse = nullptr);

}  // namespace partax
