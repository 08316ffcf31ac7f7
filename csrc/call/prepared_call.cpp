#include "call/prepared_call.h"

#include "base/binding.h"
#include "base/owned_reads.h"
#include "call/explain_failure.h"
#include "call/find_cache.h"
#include "call/flatten_call.h"
#include "call/forwarded.h"
#include "call/user_result.h"

namespace partax {

PreparedCall::PreparedCall(PyObject* jit, Ref cache, PyObject* args, PyObject* kwargs, bool abstract)
    : jit_(Ref::borrow(jit)) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) arguments_.push_back(Ref::borrow(PyTuple_GET_ITEM(args, i)));
  const std::size_t num_args = arguments_.size();
  if (PyDict_GET_SIZE(kwargs) > 0) {
    keyword_names_ = Ref::checked(PySequence_Tuple(kwargs));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keyword_names_.get()); ++i) {
      arguments_.push_back(dict_item(kwargs, PyTuple_GET_ITEM(keyword_names_.get(), i)));
    }
  }
  for (const Ref& argument : arguments_) borrowed_.push_back(argument.get());
  call_ =
      std::make_unique<Call>(as_jit(jit), std::move(cache), borrowed_.data(), num_args, keyword_names_.get(), abstract);
  const CallFrame frame = call_->frame();
  call_->read_objects();
}

PreparedCall::PreparedCall(PyObject* jit, PyObject* args, PyObject* kwargs, bool abstract)
    : PreparedCall(jit, renewed_cache(as_jit(jit)), args, kwargs, abstract) {
  CallFrame frame = call_->frame();
  if (call_->objects().has_read()) frame.objects = &call_->objects();
  bool is_new = false;
  entry_ = call_->find(frame, is_new);
  is_stored_ = frame.is_stored;
  traced_ = frame.traced;
  try {
    leaf_tuple_ = call_->leaves().tuple();
  } catch (...) {
    if (is_new) call_->cache().table.erase_untraced(*entry_);
    throw;
  }
}

std::unique_ptr<PreparedCall> PreparedCall::rebind(PyObject* args, PyObject* kwargs) const {
  std::unique_ptr<PreparedCall> other(
      new PreparedCall(jit_.get(), ready_cache(as_jit(jit_.get())), args, kwargs, false));
  if (!other->call_->matches(*entry_)) return nullptr;
  other->entry_ = entry_;
  other->leaf_tuple_ = other->call_->leaves().tuple();
  return other;
}

Ref PreparedCall::run(PyObject* callable) const {
  CallFrame frame = call_->frame();
  frame.entry = entry_.get();
  frame.is_stored = is_stored_;
  frame.traced = traced_;
  const Ref arguments = entry_->takes_tuple ? Ref::checked(PyTuple_Pack(1, leaf_tuple_.get())) : leaf_tuple_;
  const Ref target = entry_->value;
  Ref returned = [&] {
    const Away away;
    return Ref::steal(PyObject_CallFunctionObjArgs(callable, target.get(), arguments.get(), nullptr));
  }();
  frame.in_user_code = true;
  record_ = frame.record;
  if (!returned) {
    frame.cache.table.erase_untraced(*entry_);
    explain_failure(frame);
    throw PythonError{};
  }
  return returned;
}

Ref PreparedCall::result(PyObject* returned, PyObject* leaves) const {
  if (static_cast<std::size_t>(PyTuple_GET_SIZE(leaves)) != call_->leaves().size()) {
    PyErr_SetString(PyExc_ValueError, "expected as many leaves as the call has");
    throw PythonError{};
  }
  LeafBuffer others;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(leaves); ++i) others.push(PyTuple_GET_ITEM(leaves, i));
  others.take_own_statics_of(call_->leaves());
  return user_result(returned, others);
}

const PreparedCall& PreparedCall::attached() const {
  if (!call_) {
    PyErr_SetString(PyExc_RuntimeError, "partax: the call has let go of its arguments");
    throw PythonError{};
  }
  return *this;
}

Ref PreparedCall::described() const {
  LeafBuffer leaves;
  return call_data(call_->cache(), call_->bound(), call_->abstract(), leaves);
}

Ref PreparedCall::described_of(PyObject* args, PyObject* kwargs) const {
  return PreparedCall(jit_.get(), ready_cache(as_jit(jit_.get())), args, kwargs, false).described();
}

void PreparedCall::detach() noexcept {
  call_.reset();
  leaf_tuple_.reset();
  borrowed_.clear();
  std::vector<Ref> dropped;
  dropped.swap(arguments_);
}

int PreparedCall::traverse(visitproc visit, void* arg) const {
  Py_VISIT(jit_.get());
  Py_VISIT(keyword_names_.get());
  Py_VISIT(leaf_tuple_.get());
  Py_VISIT(record_.get());
  for (const Ref& argument : arguments_) Py_VISIT(argument.get());
  if (call_) {
    if (const int status = call_->traverse(visit, arg)) return status;
  }
  // One that is in a table too, or in use, is not this object's alone to report.
  return entry_.use_count() == 1 ? entry_->traverse(visit, arg) : 0;
}

// ---- A compiled program, called as the function that it was compiled from.

namespace {

Ref run_compiled(Entry& entry, JitFunction& jit, PyObject* executable, PyObject* const* args, std::size_t num_args,
                 PyObject* keyword_names) {
  Call call(jit, ready_cache(jit), args, num_args, keyword_names);
  CallFrame frame = call.frame();
  bool is_such = call.matches(entry);
  if (!is_such && call.cache().graph) {
    call.read_objects();
    is_such = call.matches(entry);
  }
  if (!is_such) {
    PyErr_SetString(PyExc_TypeError, "the static part of the arguments is not the compiled one");
    throw PythonError{};
  }
  if (entry.is_of_one_call) {
    PyErr_SetString(PyExc_TypeError,
                    "found an object in the result that can be changed and is made by the trace, expected one for each "
                    "call; call the function itself, which traces each time, or return what cannot be changed");
    throw PythonError{};
  }
  if (may_lose_forwarded(entry, call.leaves())) {
    frame.entry = &entry;
    refuse_lost_forwarded(entry, call.leaves());
  }
  return call.finish(call.run(executable, entry), entry, true);
}

// `self` is (prepared call, executable): the collector finds all that it needs.
PyObject* call_compiled(PyObject* self, PyObject* const* args, Py_ssize_t num_args, PyObject* keyword_names) noexcept {
  return guarded<PyObject*>(nullptr, [&] {
    const Ref keep = Ref::borrow(self);
    const PreparedCall& prepared = Boxed<PreparedCall>::in(PyTuple_GET_ITEM(self, 0));
    const EntryPtr entry = prepared.entry();
    return run_compiled(*entry, as_jit(prepared.jit()), PyTuple_GET_ITEM(self, 1), args,
                        static_cast<std::size_t>(num_args), keyword_names)
        .release();
  });
}

PyMethodDef call_method_def = {"compiled", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call_compiled)),
                               METH_FASTCALL | METH_KEYWORDS, nullptr};

}  // namespace

Ref make_compiled_call(PyObject* prepared, PyObject* executable) {
  const Ref self = Ref::checked(PyTuple_Pack(2, prepared, executable));
  return Ref::checked(PyCFunction_New(&call_method_def, self.get()));
}

}  // namespace partax
