// A call that is run step by step: lowered, traced, or with a compiled program.
#pragma once

#include "call/call.h"

namespace partax {

// The arguments of a call that is run step by step (lower, trace, eval_shape, compiled programs).
class PreparedCall {
 public:
  PreparedCall(PyObject* jit, PyObject* args, PyObject* kwargs, bool abstract);

  // The same program's call with other arguments, or None if their static part differs.
  Ref rebind(PyObject* args, PyObject* kwargs) const;
  // What this call, or one with other arguments, is flattened to: see Call::description.
  Ref described() const { return call().described(); }
  Ref described_of(PyObject* args, PyObject* kwargs) const;
  // Drops the arguments; all but `rebind`, `program`, `jit` and `described_of` raises from now on.
  void detach() noexcept;
  int traverse(visitproc visit, void* arg) const;

  // The record of the trace that `run` made, or None.
  Ref record() const { return or_none(call().progress().record); }
  // The objects in the arguments that the function may change, a list; or None.
  Ref objects() const { return or_none(call().objects()); }
  // The `Programs` that its program may be stored by, or None.
  Ref stored() const { return or_none(call().program()->target.stored); }
  Ref leaves() const { return call().leaves().tuple(); }
  // Calls `callable(target, arguments)` as part of this call; gives what it returns.
  Ref run(PyObject* callable) const;
  // The key and the program of this call, and its wrapper, which others of the same static part may be run by.
  const ProgramPtr& program() const noexcept { return call_ ? call_->program() : program_; }
  PyObject* jit() const noexcept { return jit_.get(); }
  // Rebuilds a result that consists of one output node, from these leaves in place of the call's own.
  Ref result(PyObject* returned, PyObject* leaves) const;

 private:
  // The call alone, with its objects read.
  PreparedCall(PyObject* jit, Ref cache, PyObject* args, PyObject* kwargs, bool abstract);
  // Raises if the call has let go of its arguments.
  Call& call() const;

  Ref jit_;
  Ref keyword_names_, arguments_;  // tuples
  std::unique_ptr<Call> call_;
  ProgramPtr program_;  // once the arguments are dropped
};

// A function that matches the arguments with the key of a PreparedCall (the Python object) and runs `executable`, which
// has been compiled for it, on their arrays. A call with another static part raises a TypeError, which Python explains.
Ref make_compiled_call(PyObject* prepared, PyObject* executable);

}  // namespace partax
