// A call that finds no program, as Python has it: see partax._jit.cache_miss, which follows it from top to bottom.
#pragma once

#include "base/boxed.h"
#include "dispatch/call.h"

namespace partax {

// A call, which clears this when it is over.
struct CallView {
  Call* call;
  int traverse(visitproc, void*) const noexcept { return 0; }
};

// A program, for the function that jax traces, which its target keeps.
struct ProgramView {
  std::weak_ptr<Program> program;
  int traverse(visitproc, void*) const noexcept { return 0; }
};

// One trace of a call's target.
class Trace {
 public:
  // Of the call for which this thread runs the program; its key must still describe the values.
  Trace(const ProgramView& program, PyObject* tracers);

  Ref call() const { return call_; }
  // The first fields of a partax._explain.history.Record, after its description.
  Ref key_state() const;
  // The user's arguments with tracers, a tuple. The user's function is called from here on.
  Ref arguments() const;
  // What the target returns to jax: an output node, or one array alone. `shardings` are the explicit ones of the
  // result, or None.
  Ref output(PyObject* result, PyObject* shardings);
  // The trace is over; `number` counts it among the callable's, if it has been recorded.
  void end(std::size_t number, bool failed);
  int traverse(visitproc visit, void* arg) const { return visit_all(visit, arg, call_, tracers_); }

 private:
  Call& running() const { return *Boxed<CallView>::in(call_.get()).call; }
  Program& program() const { return *running().program(); }

  Ref call_, tracers_;
  std::shared_ptr<std::size_t> calls_;  // of the program, where its result has them
};

// What Python has of the call for which this thread runs the program, or None.
Ref running_call(const ProgramView& program);
// The output node of a result that was stored, with arrays instead of tracers. `inputs` are those of the arguments.
Ref restore_output(Call& call, PyObject* result, PyObject* inputs);

// ---- The target of a new program, which several threads may build at once.

// Has the program keep what jax traces, a `TracedFunction`, unless another thread was first; returns what it keeps.
Ref share_function(Program& program, const Ref& function);
// Gives the program its target, and what runs instead of it, if the call has stored programs. A flag is 1 for a leaf
// that is donated. Does nothing if some trace forwards such a leaf: then the target is to be built again.
void set_target(Call& call, const Ref& jitted, PyObject* flags);

}  // namespace partax
