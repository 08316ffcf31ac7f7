#include "base/python_hooks.h"
#include "call/call.h"

namespace partax {
namespace {

thread_local CallFrame* innermost_frame = nullptr;

}  // namespace

CallFrame::CallFrame(const Call& call_) noexcept : call(call_), outer(innermost_frame) { innermost_frame = this; }

CallFrame* CallFrame::innermost() noexcept { return innermost_frame; }

CallFrame& CallFrame::under_way() {
  if (innermost_frame != nullptr) return *innermost_frame;
  raise_error(PyExc_RuntimeError, "partax: no call is under way");
}

CallFrame::~CallFrame() {
  innermost_frame = outer;
  if (on_exit) call_unheard(on_exit.get());
}

void explain_failure(const CallFrame& frame) {
  const bool is_explained = PyErr_ExceptionMatches(PyExc_ValueError) != 0 ||
                            PyErr_ExceptionMatches(PyExc_TypeError) != 0 ||
                            PyErr_ExceptionMatches(PyExc_RuntimeError) != 0;
  if (!is_explained) return;
  const Ref original = take_exception();
  restore_exception(python::explained_failure(original, frame.call.cache().options, frame.call.values(),
                                              truth(frame.traced), truth(frame.in_body)));
}

Ref call_body(PyObject* callable, PyObject* values) {
  const Call& call = CallFrame::under_way().call;
  if (PyTuple_GET_SIZE(values) != static_cast<Py_ssize_t>(call.bound().size()))
    raise_error(PyExc_RuntimeError, "partax: the call under way has not so many values");
  return call_with(call.cache().parameters, call.bound(), callable, Items(values).begin());
}

}  // namespace partax
