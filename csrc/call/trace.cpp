#include "call/trace.h"

#include <algorithm>
#include <unordered_map>

#include "base/python_hooks.h"
#include "call/output.h"
#include "tree/rebuild.h"
#include "tree/spec_data.h"

namespace partax {
namespace {

// Has a re-created callable get no program of the call: what that returns belongs to the callables of its trace.
void keep_to_its_functions(const CallFrame& frame) {
  const auto refuse = [](const TreeSpec& spec) {
    spec.each_callable([](CallableRecord& record) {
      record.refuse_others("gets no result of the earlier one, which holds an object that only that one may return");
    });
  };
  refuse(frame.entry->key);
  if (const EntryPtr root = frame.call.cache().root.lock()) refuse(root->key);
}

// The output node of a result; or nothing, where another thread has made a target meanwhile that passes a leaf through
// XLA which this trace forwards: then it is to be packed once more.
Ref pack_output(const CallFrame& frame, PyObject* result, const TreeSpec& arguments, PyObject* const* inputs,
                std::size_t num_inputs, std::shared_ptr<const TraceOutput>& packed) {
  Entry& entry = *frame.entry;
  TreeSpec spec;
  LeafBuffer arrays;
  FlattenOptions flatten_options;
  flatten_options.hashed = false;
  flatten_options.dynamic_runs = true;
  with_path("the result", [&] { Flattener(spec, arrays, flatten_options).tree(result); });

  auto output = std::make_shared<TraceOutput>();
  std::unordered_map<PyObject*, std::size_t> forwardable;
  for (std::size_t i = 0; i < num_inputs; ++i) {
    if (i >= entry.not_forwardable.size() || entry.not_forwardable[i] == 0) forwardable.emplace(inputs[i], i);
  }
  // With explicit out_shardings, Python says which leaves have one; those are not forwarded.
  Ref shardings = python::leaf_out_shardings(frame.call.cache().options, result);
  const bool has_shardings = shardings.get() != Py_None;
  std::vector<Ref> results, kept_shardings;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    PyObject* sharding = has_shardings ? PyTuple_GetItem(shardings.get(), static_cast<Py_ssize_t>(i)) : Py_None;
    if (sharding == nullptr) throw PythonError{};
    const auto input = forwardable.find(arrays[i]);
    if (sharding == Py_None && input != forwardable.end() && is_jax_array(arrays[i])) {
      output->source.push_back(~static_cast<std::int32_t>(input->second));
      forwardable.erase(input);  // only the first appearance
      continue;
    }
    output->source.push_back(static_cast<std::int32_t>(results.size()));
    results.push_back(Ref::borrow(arrays[i]));
    kept_shardings.push_back(Ref::borrow(sharding));
  }
  if (has_shardings) output->shardings = tuple_of(kept_shardings);
  const bool is_single_array =
      spec.nodes.size() == 1 && spec.nodes[0].kind == Kind::kDynamicLeaf && results.size() == 1;
  if (is_single_array && !output->shardings) return results[0];

  output->spec = std::move(spec);
  output->find_passthroughs(arguments);
  output->find_static_sources(arguments, entry.key);
  if (output->has_own_objects) keep_to_its_functions(frame);
  Ref children = tuple_of(std::move(results));
  auto slot = std::make_shared<OutputSlot>();
  slot->output = output;
  Ref node = make_output_node(slot, std::move(children));
  // From here on no Python runs: a target that is made from now on spares the leaves that this trace forwards.
  for (const std::int32_t source : output->source) {
    const std::size_t input = source < 0 ? ~static_cast<std::size_t>(source) : entry.not_forwardable.size();
    if (input < entry.not_forwardable.size() && entry.not_forwardable[input] != 0) return {};
  }
  packed = output;
  entry.add_output(slot);
  for (const PassthroughNode& given : output->passthroughs) entry.key.mark_passthrough(given.node);
  return node;
}

// The innermost call, which has an entry.
CallFrame& frame_of_entry() {
  CallFrame& frame = CallFrame::under_way();
  if (frame.entry != nullptr && !frame.in_user_code) return frame;
  raise_error(PyExc_RuntimeError, "partax: a target was called outside of its wrapper");
}

// Before a trace that is not the first: what the callables of the key, and the called one, can read may have changed.
void check_still_proven(const CallFrame& frame) {
  const auto check = [](const TreeSpec& spec) {
    spec.each_callable([](CallableRecord& record) { record.check_still_proven(); });
  };
  const CallCache& cache = frame.call.cache();
  if (frame.entry->traces > 0) check(frame.entry->key);
  const EntryPtr root = cache.root.lock();
  if (root && cache.has_traced) check(root->key);
}

// What the user's function gives for these values of the call under way.
Ref user_call(const CallFrame& frame, const Ref& values) {
  const Call& call = frame.call;
  PyObject* const callable = call.bound().has_callable() ? PyTuple_GET_ITEM(values.get(), 0) : call.jit().function;
  if (call.cache().graph) return python::trace_graph(call.cache().options, callable, values);
  return python::call_watched(callable, values, call.values());
}

// Tells Python of a trace: of its beginning, which Python may refuse by an exception, and of its end.
class TraceRecorder {
 public:
  TraceRecorder(CallFrame& frame, const TreeSpec& spec, const LeafBuffer& values, PyObject* const* tracers,
                std::size_t count)
      : TraceRecorder(frame) {  // from here on the destructor runs, whatever fails
    const CallCache& cache = frame.call.cache();
    const Ref history = frame.call.history();
    end_ = python::end_trace.get();
    const Ref epoch = number(TypeTable::instance().epoch());
    const Ref first = number(frame.entry->log.empty() ? 0 : frame.entry->log.front().number);
    Ref described = std::move(frame.described);
    if (!described) described = spec_data(spec, frame.call.names());
    record_ = python::begin_trace(history, frame.call.jit().function, described, values.tuple(),
                                  tuple_of(tracers, count), first, truth(cache.table.size() >= cache.table.max_size()),
                                  epoch, exact_unicode(frame.entry->difference));
    frame.record = record_;
    const std::size_t number = size_of_number(attribute(record_.get(), "number").get());
    frame.entry->log.push_back(EntryTrace{number, nullptr});
    number_ = number;
    frame.in_user_code = true;
  }
  TraceRecorder(const TraceRecorder&) = delete;
  TraceRecorder& operator=(const TraceRecorder&) = delete;
  ~TraceRecorder() {
    frame_.in_user_code = false;
    --frame_.entry->tracing;
    if (failed_) {
      std::vector<EntryTrace>& log = frame_.entry->log;
      const auto mine = [&](const EntryTrace& trace) { return trace.number == number_; };
      log.erase(std::remove_if(log.begin(), log.end(), mine), log.end());
    }
    if (record_) call_and_write_unraisable(end_, record_.get(), truth(failed_));
  }
  // The trace has succeeded; `calls` counts the calls of its program.
  void succeed(const std::shared_ptr<std::size_t>& calls) noexcept {
    failed_ = false;
    ++frame_.entry->traces;
    frame_.call.cache().has_traced = true;
    ++frame_.call.cache().traces;
    for (EntryTrace& trace : frame_.entry->log) {
      if (trace.number == number_) trace.calls = calls;
    }
  }

 private:
  explicit TraceRecorder(CallFrame& frame) noexcept : frame_(frame) { ++frame.entry->tracing; }

  CallFrame& frame_;
  PyObject* end_ = nullptr;  // the end marker for Python, which lives as long as the process
  Ref record_;               // once Python knows of the trace
  std::size_t number_ = 0;   // by which the entry's log has this trace; 0 before it does
  bool failed_ = true;
};

}  // namespace

void flatten_unchanged(const CallFrame& frame, TreeSpec& spec, LeafBuffer& arrays) {
  FlattenOptions options;
  options.keyed = true;
  frame.call.flatten(spec, arrays, options);
  const TreeSpec& key = frame.entry->key;
  spec.hash = key.hash;  // objects with a hash of their own may have another one since: it is they that count
  const auto names = [&] { return frame.call.names(); };
  if (with_static_path(spec, names, [&] { return key.equals(spec); })) return;
  raise_error(PyExc_RuntimeError,
              "an argument changed while its call was being traced, or since it was bound, expected arguments to stay "
              "as they are; do not mutate them from `__eq__`, `__hash__` or other threads, and bind again what you "
              "change, as by `model.eval()`");
}

Ref run_trace(PyObject* const* leaves, std::size_t count) {
  CallFrame& frame = frame_of_entry();
  // The trace sees the values of this very call; the key must still describe them.
  TreeSpec spec;
  LeafBuffer arrays;
  flatten_unchanged(frame, spec, arrays);
  check_still_proven(frame);
  frame.traced = true;
  TraceRecorder recorder(frame, spec, arrays, leaves, count);
  const Ref values = rebuild(spec, leaves, count);
  frame.in_body = true;
  const Ref result = user_call(frame, values);
  frame.in_body = false;
  std::shared_ptr<const TraceOutput> output;
  Ref node;
  while (!node) node = pack_output(frame, result.get(), spec, leaves, count, output);  // again: see there
  python::warn_of_constants(frame.record, node);
  if (output && (frame.is_stored || frame.entry->program)) {
    set_stored_result(node.get(), python::stored_result(result, tuple_of(leaves, count), node));
  }
  frame.holds_errors = python::holds_errors().get() == Py_True;
  recorder.succeed(output ? output->calls : nullptr);
  return node;
}

Ref restore_output(PyObject* result, PyObject* inputs) {
  const CallFrame& frame = frame_of_entry();
  TreeSpec spec;
  LeafBuffer arrays;
  flatten_unchanged(frame, spec, arrays);
  std::shared_ptr<const TraceOutput> output;
  const auto count = static_cast<std::size_t>(PyTuple_GET_SIZE(inputs));
  Ref node;
  while (!node) node = pack_output(frame, result, spec, Items(inputs).begin(), count, output);  // again: see there
  return node;
}

// ---- The target of a new entry.

namespace {

// For each leaf 1 or 0.
using Flags = std::vector<std::uint8_t>;

// (object, flags) from Python.
std::pair<Ref, Flags> with_flags(const Ref& made) {
  PyObject *object = nullptr, *flags = nullptr;
  parse_tuple(made.get(), "OO!", &object, &PyBytes_Type, &flags);
  const char* bytes = PyBytes_AS_STRING(flags);
  return {Ref::borrow(object), Flags(bytes, bytes + PyBytes_GET_SIZE(flags))};
}

// Whether some trace of the entry returns a flagged leaf unchanged.
bool forwards_any(const Entry& entry, const Flags& flags) {
  return std::any_of(entry.forwarded.begin(), entry.forwarded.end(), [&](std::uint32_t i) { return flags.at(i) != 0; });
}

// The function that jax traces, with the options of its jax.jit. The first thread's counts: jax traces a function once
// for all threads, and another function again.
Ref traced_function(CallFrame& frame, Entry& entry, const Ref& leaves) {
  if (entry.function) return entry.function;
  TreeSpec spec;
  LeafBuffer arrays;
  flatten_unchanged(frame, spec, arrays);
  const Call& call = frame.call;
  const Ref described = spec_data(spec, call.names());
  frame.described = described;
  auto [function, sharded] = with_flags(python::traced_function(
      call.cache().options, call.jit().function, call.values(), leaves, described, truth(call.bound().has_callable())));
  if (!entry.function) {
    entry.function = function;
    entry.not_forwardable = std::move(sharded);
  }
  return entry.function;
}

// The programs of the key that are stored, if they are to be, as the option says or else the switch; else None.
Ref find_stored(const CallCache& cache, const Ref& function, const Ref& leaves) {
  const Ref option = attribute(cache.options.get(), "store");
  const bool is_wanted = option.get() == Py_None ? programs_are_stored : option.get() != Py_False;
  return is_wanted ? python::stored_programs(cache.options, leaves, function) : Ref::borrow(Py_None);
}

}  // namespace

bool build_target(CallFrame& frame, Entry& entry, const LeafBuffer& leaves) {
  const Ref tuple = leaves.tuple();
  const Ref function = traced_function(frame, entry, tuple);
  Ref stored;  // found once, before this call traces
  while (!entry.value) {
    const Ref kept = tuple_of_numbers(std::vector<std::uint32_t>(entry.forwarded));
    Ref made, program;
    try {
      if (!stored) stored = find_stored(frame.call.cache(), function, tuple);
      frame.is_stored = stored.get() != Py_None;
      if (frame.is_stored) program = attribute(stored.get(), "program");
      made = python::build_target(frame.call.cache().options, function, tuple, kept, stored);
    } catch (const PythonError&) {
      frame.in_user_code = true;  // it may have traced, which fails as the call itself would
      explain_failure(frame);
      throw;
    }
    auto [target, donated] = with_flags(made);
    const Ref takes_tuple = attribute(function.get(), "takes_tuple");
    // From here on no Python runs: a trace either is in `forwarded`, or sees what goes through XLA.
    if (entry.value) break;
    if (forwards_any(entry, donated)) continue;
    for (std::size_t i = 0; i < donated.size(); ++i) entry.not_forwardable[i] |= donated[i];
    if (std::count(donated.begin(), donated.end(), 0) != static_cast<std::ptrdiff_t>(donated.size())) {
      entry.donated = std::move(donated);
    }
    entry.takes_tuple = takes_tuple.get() == Py_True;
    entry.value = std::move(target);
    entry.program = std::move(program);
    if (frame.is_stored) entry.stored = std::move(stored);
    const Ref done = std::move(entry.function);
    return true;
  }
  return false;
}

}  // namespace partax
