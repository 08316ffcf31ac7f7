// What a call's program depends on, described for Python, which keeps a record of each trace to explain the next one.
#pragma once

#include "base/python_api.h"
#include "call/call_frame.h"
#include "tree/leaf_buffer.h"

namespace partax {

// Tells Python of a trace: of its beginning, which Python may refuse by an exception, and of its end.
class TraceRecorder {
 public:
  TraceRecorder(CallFrame& frame, const TreeSpec& spec, const LeafBuffer& values, PyObject* const* tracers,
                std::size_t count);
  ~TraceRecorder();
  TraceRecorder(const TraceRecorder&) = delete;
  TraceRecorder& operator=(const TraceRecorder&) = delete;
  // The trace has succeeded; `calls` counts the calls of its program.
  void succeed(const std::shared_ptr<std::size_t>& calls) noexcept;

 private:
  explicit TraceRecorder(CallFrame& frame) noexcept : frame_(frame) { ++frame.entry->tracing; }

  CallFrame& frame_;
  PyObject* end_ = nullptr;  // what Python is told the end by, which lives as long as the process
  Ref record_;               // once Python knows of the trace
  std::size_t number_ = 0;   // by which the entry's log has this trace; 0 before it does
  bool failed_ = true;
};

// The (history, record) of the innermost call if jax works for its target, else None. The record is None where this
// call has not traced.
Ref call_under_way();
// Which values the innermost call has: see shape_data.
Ref call_shape();
// The wrapped callable of the innermost call, or None.
Ref called_function();
// What the innermost call, which has not traced, is compiled for.
void set_record(PyObject* record) noexcept;
// Counts that the innermost call has a stored program; gives the history of its callable.
Ref note_load();
// The innermost call: (what it is flattened to, as `spec_data` gives it, array leaves).
Ref describe_call();

}  // namespace partax
