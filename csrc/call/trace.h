// The body of a target under tracing.
#pragma once

#include "call/call_frame.h"
#include "tree/leaf_buffer.h"

namespace partax {

// Flattens the values of a call again, which `key` must still describe: RuntimeError where they have changed meanwhile.
void flatten_unchanged(const CallFrame& frame, const TreeSpec& key, TreeSpec& spec, LeafBuffer& arrays);
// Rebuilds the arguments of the innermost call from tracers, calls the user's function, and returns its arrays as an
// output node.
Ref run_trace(PyObject* const* leaves, std::size_t count);
// The output node of a result that was stored: with these arrays, of which `inputs` came in, in the place of tracers.
Ref restore_output(PyObject* result, PyObject* inputs);
// The innermost call and those after it run the target itself.
void forget_program() noexcept;
// Calls the function of the innermost call with these values in the place of its own.
Ref call_body(PyObject* callable, const std::vector<Ref>& values);
// Has `callback` called when the innermost call ends; false if it has such a callback already.
bool on_call_exit(PyObject* callback);

}  // namespace partax
