// A call that is run step by step: lowered, traced, or with a compiled program.
#pragma once

#include <memory>

#include "base/python_api.h"
#include "call/call.h"

namespace partax {

// The arguments of a call that is run step by step (lower, trace, eval_shape, compiled programs).
class PreparedCall {
 public:
  PreparedCall(PyObject* jit, PyObject* args, PyObject* kwargs, bool abstract);

  // The same program's call with other arguments, or null if their static part differs.
  std::unique_ptr<PreparedCall> rebind(PyObject* args, PyObject* kwargs) const;
  // What this call, or one with other arguments, is flattened to: see `spec_data`.
  Ref described() const;
  Ref described_of(PyObject* args, PyObject* kwargs) const;
  // Lets go of the arguments; only `record`, `rebind`, `entry`, `jit` and `described_of` may follow.
  void detach() noexcept;
  int traverse(visitproc visit, void* arg) const;
  // Raises if the call has let go of them.
  const PreparedCall& attached() const;

  // The record of the trace that `run` made, or None.
  PyObject* record() const noexcept { return record_ ? record_.get() : Py_None; }
  // The objects in the arguments that the function may change, a list; or None.
  PyObject* objects() const noexcept {
    return call_->objects().has_read() ? call_->objects().objects().get() : Py_None;
  }
  // The `Programs` that its program may be stored by, or None.
  PyObject* stored() const noexcept { return entry_->stored ? entry_->stored.get() : Py_None; }
  PyObject* leaves() const noexcept { return leaf_tuple_.get(); }
  // Calls `callable(target, *leaves)` as part of this call and rebuilds the user's result if it returns an output node.
  Ref run(PyObject* callable) const;
  // The key and the program of this call, and its wrapper, which others of the same static part may be run by.
  const EntryPtr& entry() const noexcept { return entry_; }
  PyObject* jit() const noexcept { return jit_.get(); }
  // Rebuilds a result that consists of one output node, from these leaves in place of the call's own.
  Ref result(PyObject* returned, PyObject* leaves) const;

 private:
  // The call alone, with its objects read.
  PreparedCall(PyObject* jit, Ref cache, PyObject* args, PyObject* kwargs, bool abstract);

  Ref jit_;
  std::vector<Ref> arguments_;
  Ref keyword_names_;
  std::vector<PyObject*> borrowed_;
  std::unique_ptr<Call> call_;
  EntryPtr entry_;
  Ref leaf_tuple_;
  mutable Ref record_;
  bool is_stored_ = false, traced_ = false;  // of the frame that the entry was found in
};

// A function that matches the arguments with the key of a PreparedCall (the Python object) and runs `executable`, which
// has been compiled for it, on their arrays. A call with another static part raises a TypeError, which Python explains.
Ref make_compiled_call(PyObject* prepared, PyObject* executable);

}  // namespace partax
