// One call while it is under way, and what Python asks of it.
#pragma once

#include "base/python_api.h"

namespace partax {

class Call;
struct Entry;

// A call under way, innermost first; where a trace finds the user's arguments. It is a local variable of whoever runs
// the call, and borrows the call and its entry.
struct CallFrame {
  explicit CallFrame(const Call& call) noexcept;
  ~CallFrame();
  CallFrame(const CallFrame&) = delete;
  CallFrame& operator=(const CallFrame&) = delete;
  // The call that runs now in this thread, or null.
  static CallFrame* innermost() noexcept;
  // The same; raises where there is none.
  static CallFrame& under_way();

  const Call& call;
  Entry* entry = nullptr;
  CallFrame* outer;
  Ref on_exit;    // called without arguments when the call ends
  Ref described;  // its values, as its key has them, for the trace that begins next
  Ref record;     // of the trace that this call has made or is compiled for, if any
  bool traced = false;
  bool holds_errors = false;  // what it has traced may hold errors of Equinox's
  bool in_body = false;       // of its trace; it stays so where the body has failed
  bool is_stored = false;     // it has asked for its program in the store, before it traced
  bool loaded = false;        // it has one that was
  bool in_user_code = false;  // what jax does now is not for this call's own target
};

// A target may fail on an argument before it traces. Then Python may put an exception with the argument's path in the
// place of the one that is set. The frame must be the innermost.
void explain_failure(const CallFrame& frame);

// ---- What Python asks of the innermost call, and tells it.

// (history, record) if jax works for its target, else None. The record is None where this call has not traced.
Ref call_under_way();
// Which values it has: see shape_data.
Ref call_shape();
// (what it is flattened to, as `spec_data` gives it, array leaves).
Ref describe_call();
// Its wrapped callable, or None.
Ref called_function();
// What it calls the user's function with is these values; gives the result.
Ref call_body(PyObject* callable, const std::vector<Ref>& values);
// What it, which has not traced, is compiled for.
void set_record(PyObject* record) noexcept;
// Counts that it has a stored program; gives the history of its callable.
Ref note_load();
// It and those after it run the target itself.
void forget_program() noexcept;
// Has `callback` called when it ends; false if it has such a callback already.
bool on_call_exit(PyObject* callback);

}  // namespace partax
