// The target of a new entry, and its body under tracing.
#pragma once

#include "call/call.h"

namespace partax {

// Whether Python is asked for stored programs (partax._store); set by the switch.
inline bool programs_are_stored = false;

// Python makes the jax.jit target, and may trace it to know which arguments it must not donate. Tells whether it did,
// or another thread was first. The caller must keep `entry`; from the last look at what other traces forward until the
// target is set no Python may run.
bool build_target(CallFrame& frame, Entry& entry, const LeafBuffer& leaves);

// Flattens the values of a call again, which its entry's key must still describe: RuntimeError if they have changed.
void flatten_unchanged(const CallFrame& frame, TreeSpec& spec, LeafBuffer& arrays);
// Rebuilds the arguments of the innermost call from tracers, calls the user's function, and returns its arrays as an
// output node.
Ref run_trace(PyObject* const* leaves, std::size_t count);
// The output node of a result that was stored: with these arrays, of which `inputs` are the arguments', instead of
// tracers.
Ref restore_output(PyObject* result, PyObject* inputs);

}  // namespace partax
