#include "call/prepared_call.h"

#include "call/cache_object.h"
#include "call/explain_failure.h"
#include "call/find_cache.h"
#include "call/find_entry.h"
#include "call/flatten_call.h"
#include "call/user_result.h"
#include "tree/match.h"

namespace partax {

PreparedCall::PreparedCall(PyObject* jit, Ref cache, bool abstract)
    : jit_(Ref::borrow(jit)), cache_(std::move(cache)), leaves_(std::make_unique<LeafBuffer>()), abstract_(abstract) {}

void PreparedCall::bind(PyObject* args, PyObject* kwargs) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) arguments_.push_back(Ref::borrow(PyTuple_GET_ITEM(args, i)));
  const std::size_t num_args = arguments_.size();
  if (PyDict_GET_SIZE(kwargs) > 0) {
    keyword_names_ = Ref::checked(PySequence_Tuple(kwargs));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keyword_names_.get()); ++i) {
      arguments_.push_back(Ref::borrow(PyDict_GetItem(kwargs, PyTuple_GET_ITEM(keyword_names_.get(), i))));
    }
  }
  for (const Ref& argument : arguments_) borrowed_.push_back(argument.get());
  const JitFunction& function = as_jit(jit_.get());
  CallCache& cache = cache_in(cache_.get());
  call_ = std::make_unique<BoundCall>(cache.parameters, function.callable_is_tree ? function.function : nullptr,
                                      function.self, borrowed_.data(), num_args, keyword_names_.get());
  objects_ = std::make_unique<GraphObjects>(*call_);
  if (!cache.graph) return;
  const CallFrame frame(function, cache, *call_, abstract_);
  objects_->read();
}

PreparedCall::PreparedCall(PyObject* jit, PyObject* args, PyObject* kwargs, bool abstract)
    : PreparedCall(jit, renewed_cache(as_jit(jit)), abstract) {
  bind(args, kwargs);
  CallFrame frame(as_jit(jit), cache_in(cache_.get()), *call_, abstract);
  if (objects_->has_read()) frame.objects = objects_.get();
  bool is_new = false;
  entry_ = find_entry(frame, *leaves_, is_new);
  try {
    leaf_tuple_ = leaves_->tuple();
  } catch (...) {
    if (is_new) cache_in(cache_.get()).table.erase_untraced(*entry_);
    throw;
  }
}

std::unique_ptr<PreparedCall> PreparedCall::rebind(PyObject* args, PyObject* kwargs) const {
  std::unique_ptr<PreparedCall> other(new PreparedCall(jit_.get(), ready_cache(as_jit(jit_.get())), false));
  other->bind(args, kwargs);
  other->entry_ = entry_;
  const MadeAnew made_anew;
  if (!(entry_->shape == other->call_->shape()) ||
      !match_call(entry_->key, other->call_->values(), other->call_->size(), *other->leaves_, false,
                  &cache_in(other->cache_.get()).rule) ||
      entry_->objects_apart(*other->leaves_) ||
      !is_for(*entry_, as_jit(jit_.get()).callable, made_anew, *other->leaves_)) {
    return nullptr;
  }
  other->leaf_tuple_ = other->leaves_->tuple();
  return other;
}

Ref PreparedCall::run(PyObject* callable) const {
  CallCache& cache = cache_in(cache_.get());
  CallFrame frame(as_jit(jit_.get()), cache, *call_, abstract_);
  frame.entry = entry_.get();
  const Ref arguments = entry_->takes_tuple ? Ref::checked(PyTuple_Pack(1, leaf_tuple_.get())) : leaf_tuple_;
  Ref returned = Ref::steal(PyObject_CallFunctionObjArgs(callable, target(), arguments.get(), nullptr));
  frame.in_user_code = true;
  record_ = frame.record;
  if (!returned) {
    cache.table.erase_untraced(*entry_);
    explain_failure(frame);
    throw PythonError{};
  }
  return returned;
}

Ref PreparedCall::result(PyObject* returned, PyObject* leaves) const {
  if (static_cast<std::size_t>(PyTuple_GET_SIZE(leaves)) != leaves_->size()) {
    PyErr_SetString(PyExc_ValueError, "expected as many leaves as the call has");
    throw PythonError{};
  }
  LeafBuffer others;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(leaves); ++i) others.push(PyTuple_GET_ITEM(leaves, i));
  others.take_own_statics_of(*leaves_);
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
  return call_data(cache_in(cache_.get()), *call_, abstract_, leaves);
}

Ref PreparedCall::described_of(PyObject* args, PyObject* kwargs) const {
  PreparedCall other(jit_.get(), ready_cache(as_jit(jit_.get())), false);
  other.bind(args, kwargs);
  return other.described();
}

void PreparedCall::detach() noexcept {
  objects_.reset();
  call_.reset();
  leaves_.reset();
  leaf_tuple_.reset();
  cache_.reset();
  borrowed_.clear();
  std::vector<Ref> dropped;
  dropped.swap(arguments_);
}

int PreparedCall::traverse(visitproc visit, void* arg) const {
  Py_VISIT(jit_.get());
  Py_VISIT(cache_.get());
  Py_VISIT(keyword_names_.get());
  Py_VISIT(leaf_tuple_.get());
  Py_VISIT(record_.get());
  for (const Ref& argument : arguments_) Py_VISIT(argument.get());
  if (call_) {
    if (const int status = call_->traverse(visit, arg)) return status;
  }
  if (objects_) Py_VISIT(objects_->objects().get());
  if (leaves_) {
    if (const int status = leaves_->traverse(visit, arg)) return status;
  }
  // One that is in a table too, or in use, is not this object's alone to report.
  return entry_.use_count() == 1 ? entry_->traverse(visit, arg) : 0;
}

}  // namespace partax
