#include "call/explain_retrace.h"

#include <algorithm>

#include "base/python_hooks.h"
#include "tree/spec_data.h"

namespace partax {
namespace {

// The records of the callable's traces, begun where there are none.
Ref history_of(const CallFrame& frame) {
  CallCache& cache = frame.cache;
  if (!cache.history) {
    const Ref made = python::new_history(frame.function, cache.options, exact_unicode(cache.difference));
    if (!cache.history) cache.history = made;  // else another thread was first
  }
  return cache.history;
}

PyObject* truth(bool value) noexcept { return value ? Py_True : Py_False; }

}  // namespace

TraceRecorder::TraceRecorder(CallFrame& frame, const TreeSpec& spec, const LeafBuffer& values, PyObject* const* tracers,
                             std::size_t count)
    : TraceRecorder(frame) {  // from here on the destructor runs, whatever fails
  CallCache& cache = frame.cache;
  const Ref history = history_of(frame);
  end_ = python::end_trace.get();
  const Ref epoch = Ref::checked(PyLong_FromUnsignedLongLong(TypeTable::instance().epoch()));
  const bool first = frame.entry->log.empty();
  Ref described = std::move(frame.described);
  if (!described) described = spec_data(spec, names_of(frame));
  record_ = python::begin_trace(
      history, described, tuple_of(frame.call.values(), frame.call.size()), values.tuple(), tuple_of(tracers, count),
      truth(first), truth(cache.table.size() >= cache.table.max_size()), epoch, exact_unicode(frame.entry->difference));
  frame.record = record_;
  const Ref number = attribute(record_.get(), "number");
  const std::size_t value = PyLong_AsSize_t(number.get());
  if (PyErr_Occurred() != nullptr) throw PythonError{};
  frame.entry->log.push_back(EntryTrace{value, nullptr});
  number_ = value;
  frame.in_user_code = true;
}

void TraceRecorder::succeed(const std::shared_ptr<std::size_t>& calls) noexcept {
  failed_ = false;
  ++frame_.entry->traces;
  for (EntryTrace& trace : frame_.entry->log) {
    if (trace.number == number_) trace.calls = calls;
  }
}

TraceRecorder::~TraceRecorder() {
  frame_.in_user_code = false;
  --frame_.entry->tracing;
  if (failed_) {
    std::vector<EntryTrace>& log = frame_.entry->log;
    const auto mine = [&](const EntryTrace& trace) { return trace.number == number_; };
    log.erase(std::remove_if(log.begin(), log.end(), mine), log.end());
  }
  if (!record_) return;
  Ref exception = PyErr_Occurred() != nullptr ? take_exception() : Ref();
  const Ref done = Ref::steal(PyObject_CallFunctionObjArgs(end_, record_.get(), truth(failed_), nullptr));
  if (!done) PyErr_WriteUnraisable(record_.get());
  if (exception) restore_exception(std::move(exception));
}

Ref note_load() {
  CallFrame& frame = CallFrame::under_way();
  frame.loaded = true;
  ++frame.cache.loads;
  return history_of(frame);
}

Ref call_under_way() {
  const CallFrame* frame = CallFrame::innermost();
  if (frame == nullptr || frame->entry == nullptr || frame->in_user_code) return Ref::borrow(Py_None);
  return Ref::checked(PyTuple_Pack(2, frame->cache.history ? frame->cache.history.get() : Py_None,
                                   frame->record ? frame->record.get() : Py_None));
}

Ref call_shape() {
  const CallFrame& frame = CallFrame::under_way();
  return shape_data(frame.cache.parameters, frame.call.shape(), frame.call.has_callable());
}

Ref called_function() {
  const CallFrame* frame = CallFrame::innermost();
  return Ref::borrow(frame == nullptr ? Py_None : frame->function);
}

void set_record(PyObject* record) noexcept {
  CallFrame* frame = CallFrame::innermost();
  if (frame != nullptr) frame->record = Ref::borrow(record);
}

Ref describe_call() {
  const CallFrame& frame = CallFrame::under_way();
  LeafBuffer leaves;
  const Ref data = call_data(frame.cache, frame.call, frame.abstract, leaves);
  return Ref::checked(PyTuple_Pack(2, data.get(), leaves.tuple().get()));
}

}  // namespace partax
