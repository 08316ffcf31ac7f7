// What a target returns to jax, and the user's result made of it.
#pragma once

#include <memory>

#include "call/traced_result.h"
#include "tree/leaf_buffer.h"

namespace partax {

// Adds the opaque node types to the module, and what jax's registry takes to flatten and to unflatten them.
void register_trace_output_types(PyObject* module);

// The opaque pytree node that a target returns: unflattens to itself, so that jax keeps its fast path.
Ref make_output_node(std::shared_ptr<OutputSlot> slot, Ref results);
bool is_output_node(PyObject* object) noexcept;
// Raises if the entry of the trace is gone.
std::shared_ptr<const TraceOutput> output_of(PyObject* node);
// A node of the same structure with other children; raises of what is none.
Ref with_children(PyObject* node, Ref children);
// Its children, a tuple.
Ref results_of(PyObject* node);

// The trace's result as it is stored, which the node's trace keeps: bytes, or None. Raises of what is none.
void set_stored_result(PyObject* node, Ref stored);
Ref stored_result(PyObject* node);

// Whether it holds an object that can be changed, which another call has got already.
bool is_given_away(PyObject* returned);
// The user's result from what a target returned for these input leaves.
Ref user_result(PyObject* returned, const LeafBuffer& inputs);

}  // namespace partax
