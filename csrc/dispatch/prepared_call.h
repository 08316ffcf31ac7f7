// A call that is run step by step: by `lower`, `trace`, `eval_shape`, or with a compiled program.
#pragma once

#include "dispatch/call.h"

namespace partax {

class PreparedCall {
 public:
  PreparedCall(PyObject* jit, PyObject* args, PyObject* kwargs, bool abstract);

  // The same program's call with other arguments, or None if their static part differs.
  Ref rebind(PyObject* args, PyObject* kwargs) const;
  Ref described() const { return call().described(); }
  Ref described_of(PyObject* args, PyObject* kwargs) const;
  // Drops the arguments; all but `rebind`, `program`, `jit` and `described_of` raises from now on.
  void detach() noexcept;
  int traverse(visitproc visit, void* arg) const;

  Ref record() const { return or_none(call().progress().record); }
  Ref objects() const { return or_none(call().objects()); }
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
  Call& call() const;  // raises if that has let go of its arguments

  Ref jit_;
  Ref keyword_names_, arguments_;  // tuples
  std::unique_ptr<Call> call_;
  ProgramPtr program_;  // once the arguments are dropped
};

// A function that matches the arguments with the key of a PreparedCall (the Python object) and runs `executable`, which
// has been compiled for it, on their arrays. A call with another static part raises a TypeError, which Python explains.
Ref make_compiled_call(PyObject* prepared, PyObject* executable);

}  // namespace partax
