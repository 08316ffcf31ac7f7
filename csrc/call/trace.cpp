#include "call/trace.h"

#include <unordered_map>

#include "base/python_hooks.h"
#include "call/call_frame.h"
#include "call/explain_retrace.h"
#include "call/passthrough.h"
#include "call/shared_caches.h"
#include "call/user_result.h"
#include "tree/rebuild.h"
#include "tree/spec_data.h"
#include "tree/static_node.h"

namespace partax {
namespace {

bool may_forward(PyObject* tracer) { return checked_int(PyObject_IsInstance(tracer, hooks().jax_array.get())) == 1; }

// The output node of a result, or nothing where another thread has made a target meanwhile that passes a leaf through
// XLA which this trace forwards.
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
  Ref shardings = python::leaf_out_shardings(frame.cache.options, result);
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
  find_passthroughs(*output, arguments);
  output->find_own_statics(arguments, entry.key);
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

// The same with such a target too.
Ref packed_output(const CallFrame& frame, PyObject* result, const TreeSpec& arguments, PyObject* const* inputs,
                  std::size_t num_inputs, std::shared_ptr<const TraceOutput>& packed) {
  Ref node;
  while (!node) node = pack_output(frame, result, arguments, inputs, num_inputs, packed);
  return node;
}

// The innermost call, which has an entry.
CallFrame& frame_of_entry() {
  CallFrame& frame = CallFrame::under_way();
  if (frame.entry != nullptr && !frame.in_user_code) return frame;
  raise_error(PyExc_RuntimeError, "partax: a target was called outside of its wrapper");
}

// Calls `visit(known, now)` for the static parts whose callables a trace depends on: of the wrapped callable, of the
// call, and of the static nodes in it. An argument that has changed meanwhile may have fewer of them.
template <typename Visit>
void each_static_part(const CallFrame& frame, const TreeSpec& key, const TreeSpec& now, Visit&& visit) {
  if (const EntryPtr root = frame.cache.root.lock()) {
    visit(root->key, root_spec(frame.function, frame.cache.options.get(), frame.cache.callables));
  }
  visit(key, now);
  if (key.statics.size() != now.statics.size()) return;
  for (std::size_t i = 0; i < key.statics.size(); ++i) {
    PyObject *known = key.statics[i].identity(), *value = now.statics[i].identity();
    if (known == nullptr || value == nullptr || !is_static_node(known) || !is_static_node(value)) continue;
    visit(sealed_tree(known), loose_tree(value));
  }
}

void observe(const TreeSpec& known, const TreeSpec& now) { known.observe(now); }

// What the user's function gives for these values of the call under way.
Ref user_call(const CallFrame& frame, PyObject* callable, const std::vector<Ref>& values) {
  const Ref tuple = tuple_of(std::vector<Ref>(values));
  if (frame.cache.graph) return python::traced_graph(frame.cache.options, callable, tuple);
  const Ref watched = python::watch_changes(tuple);
  Ref result = call_body(callable, values);
  python::refuse_lost_changes(watched, result);
  return result;
}

}  // namespace

Ref call_body(PyObject* callable, const std::vector<Ref>& values) {
  const CallFrame& frame = CallFrame::under_way();
  if (values.size() != frame.call.size())
    raise_error(PyExc_RuntimeError, "partax: the call under way has not so many values");
  const std::size_t first = frame.call.has_callable() ? 1 : 0;
  return call_with(frame.cache.parameters, frame.call.shape(), callable, values, first);
}

void flatten_unchanged(const CallFrame& frame, const TreeSpec& key, TreeSpec& spec, LeafBuffer& arrays) {
  FlattenOptions options = flatten_options(frame.cache, frame.call, frame.abstract);
  options.keyed = true;
  const auto names = [&] { return names_of(frame); };
  flatten_call(spec, arrays, options, frame.call.values(), frame.call.size(), names);
  each_static_part(frame, key, spec, observe);
  spec.hash = key.hash;  // objects with a hash of their own may have another one since: it is they that count
  bool unchanged = false;
  const MadeAnew made_anew;  // what it is has been asked when the entry was found
  try {
    unchanged = key.equals(spec);
  } catch (const WalkError& error) {
    raise_at_static(error, spec, names());
  }
  if (unchanged) return;
  raise_error(PyExc_RuntimeError,
              "an argument changed while its call was being traced, or since it was bound, expected arguments to stay "
              "as they are; do not mutate them from `__eq__`, `__hash__` or other threads, and bind anew what you "
              "change, as by `model.eval()`");
}

Ref run_trace(PyObject* const* leaves, std::size_t count) {
  CallFrame& frame = frame_of_entry();
  // The trace sees the values of this very call; the key must still describe them.
  TreeSpec spec;
  LeafBuffer arrays;
  flatten_unchanged(frame, frame.entry->key, spec, arrays);
  frame.traced = true;
  TraceRecorder recorder(frame, spec, arrays, leaves, count);
  ListedLeaves tracers(leaves, count);
  const std::vector<Ref> values = rebuild_call(spec, tracers);
  PyObject* callable = frame.call.has_callable() ? values[0].get() : frame.function;
  frame.in_body = true;
  const Ref result = user_call(frame, callable, values);
  frame.in_body = false;
  each_static_part(frame, frame.entry->key, spec, observe);
  std::shared_ptr<const TraceOutput> output;
  const Ref node = packed_output(frame, result.get(), spec, leaves, count, output);
  if (output && (frame.is_stored || frame.entry->program)) {
    set_stored_result(node.get(), python::stored_result(result, tuple_of(leaves, count), node));
  }
  if (output && output->holds_user_objects()) {
    each_static_part(frame, frame.entry->key, spec, [](const TreeSpec& known, const TreeSpec&) {
      known.stop_sharing("an object of its own that it returns");
    });
  }
  frame.holds_errors = python::holds_errors().get() == Py_True;
  recorder.succeed(output ? output->calls : nullptr);
  return node;
}

Ref restore_output(PyObject* result, PyObject* inputs) {
  const CallFrame& frame = frame_of_entry();
  TreeSpec spec;
  LeafBuffer arrays;
  flatten_unchanged(frame, frame.entry->key, spec, arrays);
  std::shared_ptr<const TraceOutput> output;
  return packed_output(frame, result, spec, reinterpret_cast<PyTupleObject*>(inputs)->ob_item,
                       static_cast<std::size_t>(PyTuple_GET_SIZE(inputs)), output);
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
