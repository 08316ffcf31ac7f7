#include "trace.h"

#include <unordered_map>

#include "call.h"
#include "rebuild.h"
#include "shared_caches.h"
#include "trace_output.h"
#include "trace_record.h"

namespace partax {
namespace {

class Tracers final : public LeafSource {
 public:
  Tracers(PyObject* const* leaves, std::size_t count) : leaves_(leaves), count_(count) {}
  Ref leaf(std::size_t index) override {
    if (index >= count_) {
      PyErr_SetString(PyExc_RuntimeError, "partax: a trace got fewer leaves than its arguments have");
      throw PythonError{};
    }
    return Ref::borrow(leaves_[index]);
  }

 private:
  PyObject* const* leaves_;
  std::size_t count_;
};

bool may_forward(PyObject* tracer) { return checked_int(PyObject_IsInstance(tracer, hooks().jax_array.get())) == 1; }

// The callables of the arguments that are returned: each call gives back its own.
void forward_callables(TraceOutput& output, const TreeSpec& arguments, const TreeSpec& key) {
  std::unordered_map<PyObject*, std::size_t> known;
  for (std::size_t i = 0; i < key.statics.size(); ++i) {
    if (key.statics[i].is_callable()) known.emplace(arguments.statics[i].identity(), i);
  }
  if (known.empty()) return;
  std::vector<StaticValue>& statics = output.spec.statics;
  for (std::size_t i = 0; i < statics.size(); ++i) {
    const auto found = known.find(statics[i].identity());
    if (found == known.end()) continue;
    output.static_source.resize(statics.size(), -1);
    output.static_source[i] = static_cast<std::int32_t>(found->second);
    statics[i] = key.statics[found->second].as_weak();
  }
}

// The output node of a result, or nothing where a leaf that it forwards has been pinned meanwhile by another thread.
Ref pack_output(PyObject* result, const TreeSpec& arguments, Entry& entry, PyObject* const* inputs,
                std::size_t num_inputs, PyObject* options, std::shared_ptr<std::size_t>& calls) {
  TreeSpec spec;
  LeafBuffer arrays;
  FlattenOptions flatten_options;
  flatten_options.hashed = false;
  flatten_options.rebuildable = true;
  try {
    try {
      Flattener(spec, arrays, flatten_options).tree(result);
    } catch (const PythonError&) {
      throw WalkError::from_user_code("reading");
    }
  } catch (const WalkError& error) {
    error.raise("the result");
    throw PythonError{};
  }

  auto output = std::make_shared<TraceOutput>();
  std::unordered_map<PyObject*, std::size_t> forwardable;
  for (std::size_t i = 0; i < num_inputs; ++i) {
    if (i >= entry.pinned.size() || entry.pinned[i] == 0) forwardable.emplace(inputs[i], i);
  }
  // With explicit out_shardings, Python says which leaves have one; those are not forwarded.
  Ref shardings = Ref::checked(PyObject_CallFunctionObjArgs(hooks().out_shardings.get(), options, result, nullptr));
  Ref kept_shardings;
  if (shardings.get() != Py_None) kept_shardings = Ref::checked(PyList_New(0));

  std::vector<Ref> results;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    PyObject* sharding = kept_shardings ? PyTuple_GetItem(shardings.get(), static_cast<Py_ssize_t>(i)) : Py_None;
    if (sharding == nullptr) throw PythonError{};
    const auto input = forwardable.find(arrays[i]);
    if (sharding == Py_None && input != forwardable.end() && may_forward(arrays[i])) {
      output->source.push_back(~static_cast<std::int32_t>(input->second));
      forwardable.erase(input);  // only the first appearance
      continue;
    }
    output->source.push_back(static_cast<std::int32_t>(results.size()));
    results.push_back(Ref::borrow(arrays[i]));
    if (kept_shardings) checked_int(PyList_Append(kept_shardings.get(), sharding));
  }
  if (kept_shardings) output->shardings = Ref::checked(PyList_AsTuple(kept_shardings.get()));
  const bool bare = spec.nodes.size() == 1 && spec.nodes[0].kind == Kind::kDynamicLeaf && results.size() == 1;
  if (bare && !output->shardings) return results[0];

  output->spec = std::move(spec);
  forward_callables(*output, arguments, entry.key);
  output->spec = output->spec.weakened(entry.key);
  Ref children = tuple_of(std::move(results));
  auto slot = std::make_shared<OutputSlot>();
  slot->output = output;
  Ref node = make_output_node(slot, std::move(children));
  // From here on no Python runs: what is pinned from now on spares the leaves that this trace forwards.
  for (const std::int32_t source : output->source) {
    const std::size_t input = source < 0 ? ~static_cast<std::size_t>(source) : entry.pinned.size();
    if (input < entry.pinned.size() && entry.pinned[input] != 0) return {};
  }
  calls = output->calls;
  entry.add_output(slot);
  return node;
}

[[noreturn]] void raise_outdated(CallFrame& frame) {
  frame.outdated = true;
  PyErr_SetString(PyExc_RuntimeError,
                  "the wrapped callable changed while a call was under way, expected it to stay as it is");
  throw PythonError{};
}

bool others_are_there() noexcept {
  return PyThreadState_Next(PyInterpreterState_ThreadHead(PyInterpreterState_Get())) != nullptr;
}

// Nobody else finds the program.
void keep_nothing(CallFrame& frame) noexcept {
  frame.keeps_nothing = true;
  frame.cache.table.erase(*frame.entry);
}

}  // namespace

Ref run_trace(PyObject* const* leaves, std::size_t count) {
  CallFrame* frame = CallFrame::innermost();
  if (frame == nullptr || frame->entry == nullptr) {
    PyErr_SetString(PyExc_RuntimeError, "partax: a target was called outside of its wrapper");
    throw PythonError{};
  }
  // The trace sees the values of this very call; the key must still describe them.
  TreeSpec spec;
  LeafBuffer arrays;
  FlattenOptions options = flatten_options(frame->cache, frame->call, frame->abstract);
  options.rebuildable = true;
  options.keyed = true;
  const auto names = [&] { return names_of(*frame); };
  flatten_call(spec, arrays, options, frame->call.values(), frame->call.size(), names);
  bool unchanged = false;
  try {
    unchanged = frame->entry->key.equals(spec);
  } catch (const WalkError& error) {
    raise_at_static(error, spec, names());
  }
  if (!unchanged) {
    PyErr_SetString(PyExc_RuntimeError,
                    "an argument changed while its call was being traced, expected arguments to stay as they are for "
                    "the length of a call; do not mutate them from `__eq__`, `__hash__` or other threads");
    throw PythonError{};
  }
  // The callable may hold other things than when its cache was found. In the last try, what it traces now is for itself
  // alone.
  if (!is_known(frame->function, frame->cache)) {
    if (!frame->is_last_try) raise_outdated(*frame);
    const Change change = settle_root(frame->function, frame->cache, others_are_there());
    if (change == Change::kNone) raise_outdated(*frame);
    if (change == Change::kOthers) keep_nothing(*frame);
  }
  frame->traced = true;
  TraceRecorder recorder(*frame, spec, arrays, leaves, count);
  Tracers tracers(leaves, count);
  const std::vector<Ref> values = rebuild_call(spec, tracers);
  const bool has_callable = frame->call.has_callable();
  PyObject* callable = has_callable ? values[0].get() : frame->function;
  frame->in_body = true;
  const Ref result = call_with(frame->cache.parameters, frame->call.shape(), callable, values, has_callable ? 1 : 0);
  frame->in_body = false;
  if (!frame->keeps_nothing) {
    const Change root = settle_root(frame->function, frame->cache, others_are_there());
    if (root == Change::kOthers || settle_key(*frame, others_are_there()) == Change::kOthers) {
      if (!frame->is_last_try) raise_outdated(*frame);
      keep_nothing(*frame);
    }
    if (root == Change::kNone) note_unchanged(frame->function);
    frame->root_changed = root == Change::kOwn;
  }
  Ref packed;
  std::shared_ptr<std::size_t> calls;
  while (!packed) {
    packed = pack_output(result.get(), spec, *frame->entry, leaves, count, frame->cache.options.get(), calls);
  }
  recorder.succeed(calls);
  return packed;
}

bool on_call_exit(PyObject* callback) {
  CallFrame* frame = CallFrame::innermost();
  if (frame == nullptr || frame->on_exit) return false;
  frame->on_exit = Ref::borrow(callback);
  return true;
}

}  // namespace partax
