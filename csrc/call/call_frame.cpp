// A call while it is under way, and what Python asks of it.
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

Ref call_under_way() {
  const CallFrame* frame = CallFrame::innermost();
  if (frame == nullptr || frame->entry == nullptr || frame->in_user_code) return Ref::borrow(Py_None);
  return tuple_of({or_none(frame->call.cache().history), or_none(frame->record)});
}

Ref call_shape() {
  const Call& call = CallFrame::under_way().call;
  return shape_data(call.cache().parameters, call.bound());
}

Ref describe_call() { return CallFrame::under_way().call.described(); }

Ref called_function() {
  const CallFrame* frame = CallFrame::innermost();
  return Ref::borrow(frame == nullptr ? Py_None : frame->call.jit().function);
}

Ref call_body(PyObject* callable, const std::vector<Ref>& values) {
  const Call& call = CallFrame::under_way().call;
  if (values.size() != call.bound().size())
    raise_error(PyExc_RuntimeError, "partax: the call under way has not so many values");
  return call_with(call.cache().parameters, call.bound(), callable, values);
}

void set_record(PyObject* record) noexcept {
  CallFrame* frame = CallFrame::innermost();
  if (frame != nullptr) frame->record = Ref::borrow(record);
}

Ref note_load() {
  CallFrame& frame = CallFrame::under_way();
  frame.loaded = true;
  ++frame.call.cache().loads;
  return frame.call.history();
}

void forget_program() noexcept {
  CallFrame* frame = CallFrame::innermost();
  if (frame == nullptr || frame->entry == nullptr) return;
  const Ref program = std::move(frame->entry->program), stored = std::move(frame->entry->stored);
}

bool on_call_exit(PyObject* callback) {
  CallFrame* frame = CallFrame::innermost();
  if (frame == nullptr || frame->on_exit) return false;
  frame->on_exit = Ref::borrow(callback);
  return true;
}

}  // namespace partax
