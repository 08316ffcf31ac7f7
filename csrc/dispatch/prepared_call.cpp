#include "dispatch/prepared_call.h"

#include "base/boxed.h"
#include "dispatch/output.h"

namespace partax {

PreparedCall::PreparedCall(PyObject* jit, Ref cache, PyObject* args, PyObject* kwargs, bool abstract)
    : jit_(Ref::borrow(jit)),
      keyword_names_(PyDict_GET_SIZE(kwargs) == 0 ? Ref() : Ref::checked(PySequence_Tuple(kwargs))) {
  const Ref named = Ref::checked(PySequence_Tuple(Ref::checked(PyDict_Values(kwargs)).get()));
  arguments_ = Ref::checked(PySequence_Concat(args, named.get()));
  call_ = std::make_unique<Call>(as_jit(jit), std::move(cache), Items(arguments_.get()).begin(),
                                 static_cast<std::size_t>(PyTuple_GET_SIZE(args)), keyword_names_.get(), abstract);
  call_->read_objects();
}

PreparedCall::PreparedCall(PyObject* jit, PyObject* args, PyObject* kwargs, bool abstract)
    : PreparedCall(jit, renewed_cache(as_jit(jit)), args, kwargs, abstract) {
  call_->find();
}

Call& PreparedCall::call() const {
  if (call_) return *call_;
  raise_error(PyExc_RuntimeError, "partax: the call has let go of its arguments");
}

Ref PreparedCall::rebind(PyObject* args, PyObject* kwargs) const {
  std::unique_ptr<PreparedCall> other(
      new PreparedCall(jit_.get(), ready_cache(as_jit(jit_.get())), args, kwargs, false));
  if (!other->call_->matches(*program())) return Ref::borrow(Py_None);
  other->call_->set_program(program());
  return box(std::move(other));
}

Ref PreparedCall::run(PyObject* callable) const {
  Call& call = this->call();
  const Ref target = program()->target.jitted, leaves = call.leaves().tuple();
  const Ref arguments = program()->target.takes_tuple ? tuple_of({leaves}) : leaves;
  try {
    const TargetRun run(call);
    const Away away;
    return Ref::checked(PyObject_CallFunctionObjArgs(callable, target.get(), arguments.get(), nullptr));
  } catch (const PythonError&) {
    explain_failure(call);
    throw;
  }
}

Ref PreparedCall::result(PyObject* returned, PyObject* leaves) const {
  if (static_cast<std::size_t>(PyTuple_GET_SIZE(leaves)) != call().leaves().size())
    raise_error(PyExc_ValueError, "expected as many leaves as the call has");
  LeafBuffer other_leaves = call().leaves();
  std::size_t i = 0;
  for (PyObject* leaf : Items(leaves)) other_leaves.replace(i++, leaf);
  return user_result(returned, other_leaves);
}

Ref PreparedCall::described_of(PyObject* args, PyObject* kwargs) const {
  return PreparedCall(jit_.get(), ready_cache(as_jit(jit_.get())), args, kwargs, false).described();
}

void PreparedCall::detach() noexcept {
  program_ = program();
  call_.reset();
  arguments_.reset();
}

int PreparedCall::traverse(visitproc visit, void* arg) const {
  if (const int status = visit_all(visit, arg, jit_, keyword_names_, arguments_, call_)) return status;
  // One that is in a table too, or in use, is not this object's alone to report.
  return program().use_count() == 1 ? program()->traverse(visit, arg) : 0;
}

// ---- A compiled program, called as the function that it was compiled from.

namespace {

// `self` is (prepared call, executable): the collector finds all that it needs.
PyObject* call_compiled(PyObject* self, PyObject* const* args, Py_ssize_t num_args, PyObject* keyword_names) noexcept {
  return guarded<PyObject*>(nullptr, [&] {
    const Ref keep = Ref::borrow(self);
    const PreparedCall& prepared = Boxed<PreparedCall>::in(PyTuple_GET_ITEM(self, 0));
    const ProgramPtr program = prepared.program();
    JitFunction& jit = as_jit(prepared.jit());
    Call call(jit, ready_cache(jit), args, static_cast<std::size_t>(num_args), keyword_names);
    bool is_match = call.matches(*program);
    if (!is_match && call.cache().graph) {
      call.read_objects();
      is_match = call.matches(*program);
    }
    if (!is_match) raise_error(PyExc_TypeError, "the static part of the arguments is not the compiled one");
    call.set_program(program);
    {
      const TargetRun run(call);
      refuse_lost_forwarded(call);
    }
    return call.finish(call.run(PyTuple_GET_ITEM(self, 1)), true).release();
  });
}

PyMethodDef call_method_def = {"compiled", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call_compiled)),
                               METH_FASTCALL | METH_KEYWORDS, nullptr};

}  // namespace

Ref make_compiled_call(PyObject* prepared, PyObject* executable) {
  if (Py_TYPE(prepared) != Boxed<PreparedCall>::type) raise_error(PyExc_TypeError, "expected a PreparedCall");
  const Ref self = Ref::checked(PyTuple_Pack(2, prepared, executable));
  return Ref::checked(PyCFunction_New(&call_method_def, self.get()));
}

}  // namespace partax
