// One call while it is under way.
#pragma once

#include "call/bound_call.h"
#include "call/call_cache.h"
#include "call/jit_function.h"

namespace partax {

class GraphObjects;

// A call under way, innermost first; where a trace finds the user's arguments. It is a local variable of its call,
// which must keep all that the frame borrows: the callable, the cache, the bound arguments and the entry.
struct CallFrame {
  CallFrame(const JitFunction& jit, CallCache& cache, const BoundCall& call, bool abstract) noexcept;
  ~CallFrame();
  CallFrame(const CallFrame&) = delete;
  CallFrame& operator=(const CallFrame&) = delete;
  // The call that runs now in this thread, or null.
  static CallFrame* innermost() noexcept;
  // The same; raises where there is none.
  static CallFrame& under_way();

  PyObject* function;  // the wrapped callable
  PyObject* callable;  // what was wrapped: it, or a method of it
  CallCache& cache;
  const BoundCall& call;
  Entry* entry = nullptr;
  const GraphObjects* objects = nullptr;  // null but for a function with the option `graph`
  CallFrame* outer;
  Ref on_exit;    // called without arguments when the call ends
  Ref described;  // its values, as its key has them, for the trace that begins next
  Ref record;     // of the trace that this call has made or is compiled for, if any
  bool abstract;
  bool traced = false;
  bool holds_errors = false;  // what it has traced may hold errors of Equinox's
  bool in_body = false;       // of its trace; it stays so where the body has failed
  bool is_stored = false;     // it has asked for its program in the store, before it traced
  bool loaded = false;        // it has one that was
  bool in_user_code = false;  // what jax does now is not for this call's own target
};

// The roots of the paths of a call's values: a tuple.
Ref names_of(const CallFrame& frame);
// A target may fail on an argument before it traces. Then Python may put an exception with the argument's path in the
// place of the one that is set. The frame must be the innermost.
void explain_failure(const CallFrame& frame);

}  // namespace partax
