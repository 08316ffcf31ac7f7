#include "trace_record.h"

#include <algorithm>

namespace partax {
namespace {

enum PartKind : std::uint8_t { kArray, kValue, kRun, kNode };

class Parts final : public TreeVisitor {
 public:
  explicit Parts(const TreeSpec& spec) : spec_(spec), list_(Ref::checked(PyList_New(0))) {}

  void array(const std::string& path) override { add(path, kArray, Ref::borrow(Py_None)); }

  void value(const std::string& path, std::size_t index) override { add(path, kValue, static_at(index)); }

  void run(const std::string& path, std::size_t first, std::size_t count, std::size_t index) override {
    const Ref values = Ref::checked(PyTuple_New(static_cast<Py_ssize_t>(count)));
    for (std::size_t i = 0; i < count; ++i) {
      PyTuple_SET_ITEM(values.get(), static_cast<Py_ssize_t>(i), static_at(index + i).release());
    }
    add(path, kRun, Ref::checked(Py_BuildValue("(nO)", static_cast<Py_ssize_t>(first), values.get())));
  }

  void node(const std::string& path, const Node& node) override {
    PyObject* type = node.info == nullptr ? Py_None : reinterpret_cast<PyObject*>(node.info->type);
    Ref children = Ref::checked(PyLong_FromUnsignedLong(node.arity));
    if (node.kind == Kind::kOrderedDict) {
      children = Ref::checked(PyTuple_New(node.arity));
      for (std::uint32_t i = 0; i < node.arity; ++i) {
        PyTuple_SET_ITEM(children.get(), i, static_at(first_key(node) + i).release());
      }
    }
    add(path, kNode, Ref::checked(Py_BuildValue("(sOO)", kind_name(node.kind), type, children.get())));
  }

  Ref list() const { return list_; }

 private:
  Ref static_at(std::size_t index) const {
    Ref value = spec_.statics[index].value();
    return value ? value : Ref::borrow(Py_None);
  }

  void add(const std::string& path, PartKind kind, const Ref& value) {
    const Ref part = Ref::checked(Py_BuildValue("(OiO)", unicode(path).get(), static_cast<int>(kind), value.get()));
    checked_int(PyList_Append(list_.get(), part.get()));
  }

  const TreeSpec& spec_;
  Ref list_;
};

PyObject* truth(bool value) noexcept { return value ? Py_True : Py_False; }

}  // namespace

Ref describe(const TreeSpec& spec, const Names& roots) {
  Parts parts(spec);
  each_part(spec, roots, parts);
  return parts.list();
}

TraceRecorder::TraceRecorder(CallFrame& frame, const TreeSpec& spec, const LeafBuffer& values, PyObject* const* tracers,
                             std::size_t count)
    : TraceRecorder(frame) {  // from here on the destructor runs, whatever fails
  CallCache& cache = frame.cache;
  if (!cache.history) {
    const Ref made =
        Ref::checked(PyObject_CallFunctionObjArgs(hooks().new_history.get(), frame.function, cache.options.get(),
                                                  exact_unicode(cache.difference).get(), nullptr));
    if (!cache.history) cache.history = made;  // else another thread was first
  }
  const Ref history = cache.history;
  const Ref epoch = Ref::checked(PyLong_FromUnsignedLongLong(TypeTable::instance().epoch()));
  const bool first = frame.entry->log.empty();
  record_ = Ref::checked(PyObject_CallFunctionObjArgs(
      hooks().begin_trace.get(), history.get(), describe(spec, names_of(frame)).get(),
      tuple_of(frame.call.values(), frame.call.size()).get(), values.tuple().get(), tuple_of(tracers, count).get(),
      truth(first), truth(cache.table.size() >= cache.table.max_size()), epoch.get(),
      exact_unicode(frame.entry->difference).get(), nullptr));
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
  const Ref done =
      Ref::steal(PyObject_CallFunctionObjArgs(hooks().end_trace.get(), record_.get(), truth(failed_), nullptr));
  if (!done) PyErr_WriteUnraisable(record_.get());
  if (exception) restore_exception(std::move(exception));
}

Ref call_under_way() {
  const CallFrame* frame = CallFrame::innermost();
  if (frame == nullptr || frame->entry == nullptr || frame->in_user_code) return Ref::borrow(Py_None);
  return Ref::checked(PyTuple_Pack(2, frame->cache.history ? frame->cache.history.get() : Py_None,
                                   frame->record ? frame->record.get() : Py_None));
}

void set_record(PyObject* record) noexcept {
  CallFrame* frame = CallFrame::innermost();
  if (frame != nullptr) frame->record = Ref::borrow(record);
}

Ref describe_call() {
  const CallFrame* frame = CallFrame::innermost();
  if (frame == nullptr) {
    PyErr_SetString(PyExc_RuntimeError, "partax: no call is under way");
    throw PythonError{};
  }
  TreeSpec spec;
  LeafBuffer leaves;
  FlattenOptions options;
  options.abstract = frame->abstract;
  options.hashed = false;
  options.keyed = true;
  const Names names = names_of(*frame);
  flatten_call(spec, leaves, options, frame->call.values(), frame->call.size(), [&] { return names_of(*frame); });
  return Ref::checked(PyTuple_Pack(2, describe(spec, names).get(), leaves.tuple().get()));
}

}  // namespace partax
