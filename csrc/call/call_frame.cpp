#include "call/call_frame.h"

#include "base/python_hooks.h"

namespace partax {
namespace {

thread_local CallFrame* innermost_frame = nullptr;

}  // namespace

CallFrame::CallFrame(const JitFunction& jit, CallCache& cache_, const BoundCall& call_, bool abstract_) noexcept
    : function(jit.function),
      callable(jit.callable),
      cache(cache_),
      call(call_),
      outer(innermost_frame),
      abstract(abstract_) {
  innermost_frame = this;
}

CallFrame* CallFrame::innermost() noexcept { return innermost_frame; }

CallFrame& CallFrame::under_way() {
  if (innermost_frame != nullptr) return *innermost_frame;
  raise_error(PyExc_RuntimeError, "partax: no call is under way");
}

CallFrame::~CallFrame() {
  innermost_frame = outer;
  if (!on_exit) return;
  // A result or an exception is on its way to the caller: the callback must not disturb it.
  const bool failed = PyErr_Occurred() != nullptr;
  Ref exception = failed ? take_exception() : Ref();
  const Ref done = Ref::steal(PyObject_CallNoArgs(on_exit.get()));
  if (!done) PyErr_WriteUnraisable(on_exit.get());
  if (failed) restore_exception(std::move(exception));
}

Ref names_of(const CallFrame& frame) {
  return value_names(frame.cache.parameters, frame.call.shape(), frame.call.has_callable());
}

void explain_failure(const CallFrame& frame) {
  const bool is_explained = PyErr_ExceptionMatches(PyExc_ValueError) != 0 ||
                            PyErr_ExceptionMatches(PyExc_TypeError) != 0 ||
                            PyErr_ExceptionMatches(PyExc_RuntimeError) != 0;
  if (!is_explained) return;
  Ref original = take_exception();
  restore_exception(python::explained_failure(original, frame.cache.options,
                                              tuple_of(frame.call.values(), frame.call.size()),
                                              frame.traced ? Py_True : Py_False, frame.in_body ? Py_True : Py_False));
}

}  // namespace partax
