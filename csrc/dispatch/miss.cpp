#include "dispatch/miss.h"

#include <algorithm>
#include <unordered_map>

#include "dispatch/output.h"
#include "pytree/rebuild.h"
#include "pytree/spec_data.h"

namespace partax {
namespace {

// The callables of the key, and what the called one consists of.
template <typename Visit>
void each_callable(const Call& call, bool in_key, bool in_called, Visit&& visit) {
  const ProgramPtr root = call.cache().root.lock();
  if (in_key) call.program()->key.each_callable(visit);
  if (in_called && root) root->key.each_callable(visit);
}

// The output node of a result; or nothing, where another thread has made a target meanwhile that passes a leaf through
// XLA which this trace forwards: then it is to be packed once more.
Ref pack_output(Call& call, PyObject* result, PyObject* shardings, PyObject* inputs,
                std::shared_ptr<std::size_t>& calls) {
  Program& program = *call.program();
  const std::vector<std::uint8_t>& not_forwardable = program.leaves.not_forwardable;
  TreeSpec spec;
  LeafBuffer arrays;
  FlattenOptions flatten_options;
  flatten_options.hashed = false;
  with_path("the result", [&] { Flattener(spec, arrays, flatten_options).tree(result); });

  auto output = std::make_shared<TraceOutput>();
  std::unordered_map<PyObject*, std::size_t> forwardable;
  std::size_t num_inputs = 0;
  for (PyObject* input : Items(inputs)) {
    const std::size_t i = num_inputs++;
    if (i >= not_forwardable.size() || not_forwardable[i] == 0) forwardable.emplace(input, i);
  }
  // A leaf with an explicit sharding is not forwarded.
  const bool has_shardings = shardings != Py_None;
  std::vector<Ref> results, kept_shardings;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    PyObject* sharding = has_shardings ? PyTuple_GetItem(shardings, static_cast<Py_ssize_t>(i)) : Py_None;
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
  output->find_passthroughs(call.description().spec);
  output->find_static_sources(call.description().spec, program.key);
  each_callable(call, output->has_own_objects, output->has_own_objects, [](CallableRecord& record) {
    record.refuse_others("gets no result of the earlier one, which holds an object that only that one may return");
  });
  Ref children = tuple_of(std::move(results));
  auto slot = std::make_shared<OutputSlot>();
  slot->output = output;
  Ref node = make_output_node(slot, std::move(children));
  // From here on no Python runs: a target that is made from now on spares the leaves that this trace forwards.
  for (const std::int32_t source : output->source) {
    const std::size_t input = source < 0 ? ~static_cast<std::size_t>(source) : not_forwardable.size();
    if (input < not_forwardable.size() && not_forwardable[input] != 0) return {};
  }
  calls = output->calls;
  program.add_output(slot);
  for (const PassthroughNode& passthrough : output->passthroughs) program.key.mark_passthrough(passthrough.node);
  return node;
}

Ref output_node(Call& call, PyObject* result, PyObject* shardings, PyObject* inputs,
                std::shared_ptr<std::size_t>& calls) {
  Ref node;
  while (!node) node = pack_output(call, result, shardings, inputs, calls);
  return node;
}

// Whether a program for the key is one for the values.
void check_unchanged(Call& call) {
  const TreeSpec& key = call.program()->key;
  TreeSpec& spec = call.description().spec;
  spec.hash = key.hash;  // objects with a hash of their own may have another one since: it is they that count
  const auto names = [&] { return call.names(); };
  if (with_static_path(spec, names, [&] { return key.equals(spec); })) return;
  raise_error(PyExc_RuntimeError,
              "an argument changed while its call was being traced, or since it was bound, expected arguments to stay "
              "as they are; do not mutate them from `__eq__`, `__hash__` or other threads, and bind again what you "
              "change, as by `model.eval()`");
}

// For each leaf 1 or 0.
using Flags = std::vector<std::uint8_t>;

Flags read_flags(PyObject* bytes) {
  const char* data = PyBytes_AsString(bytes);
  if (data == nullptr) throw PythonError{};
  return {data, data + PyBytes_GET_SIZE(bytes)};
}

}  // namespace

// ---- A trace.

Ref running_call(const ProgramView& view) {
  const ProgramPtr program = view.program.lock();
  Call* const call = program ? TargetRun::call_of(*program) : nullptr;
  return call == nullptr ? Ref::borrow(Py_None) : call->view();
}

Trace::Trace(const ProgramView& view, PyObject* tracers) : call_(running_call(view)), tracers_(Ref::borrow(tracers)) {
  if (call_.get() == Py_None) raise_error(PyExc_RuntimeError, "partax: a target was called outside of its wrapper");
  Call& call = running();
  check_unchanged(call);
  // Before a trace that is not the first: what they can read may have changed.
  each_callable(call, !program().traces.empty(), call.cache().has_traced,
                [](CallableRecord& record) { record.check_still_proven(); });
  call.progress().traced = true;
  ++program().tracing;
}

Ref Trace::key_state() const {
  const ProgramTable& table = running().cache().table;
  const Ref first = number(program().traces.empty() ? 0 : program().traces.front().number);
  return tuple_of({first, number(TypeTable::instance().epoch()), exact_unicode(program().difference),
                   Ref::borrow(truth(table.size() >= table.max_size()))});
}

Ref Trace::arguments() const {
  const auto count = static_cast<std::size_t>(PyTuple_GET_SIZE(tracers_.get()));
  Ref values = rebuild(running().description().spec, Items(tracers_.get()).begin(), count);
  running().progress().in_body = true;
  return values;
}

Ref Trace::output(PyObject* result, PyObject* shardings) {
  running().progress().in_body = false;
  return output_node(running(), result, shardings, tracers_.get(), calls_);
}

void Trace::end(std::size_t number, bool failed) {
  --program().tracing;
  if (failed) return;
  ++running().cache().counts.traces;
  running().cache().has_traced = true;
  program().traces.push_back(ProgramTrace{number, calls_});
}

Ref restore_output(Call& call, PyObject* result, PyObject* inputs) {
  check_unchanged(call);
  std::shared_ptr<std::size_t> calls;
  return output_node(call, result, Py_None, inputs, calls);
}

// ---- The target of a new program.

Ref share_function(Program& program, const Ref& function) {
  Flags not_forwardable = read_flags(attribute(function.get(), "not_forwardable").get());
  if (!program.target.function) {
    program.target.function = function;
    program.leaves.not_forwardable = std::move(not_forwardable);
  }
  return program.target.function;
}

void set_target(Call& call, const Ref& jitted, PyObject* flags) {
  Target& target = call.program()->target;
  LeafUse& use = call.program()->leaves;
  Flags donated = read_flags(flags);
  if (target.jitted) return;  // another thread was first, and has dropped the function
  const bool takes_tuple = attribute(target.function.get(), "takes_tuple").get() == Py_True;
  const Ref& stored = call.progress().stored;
  Ref callable = stored ? attribute(stored.get(), "program") : jitted;
  // From here on no Python runs: a trace either is in `forwarded`, or sees what goes through XLA.
  if (target.jitted) return;
  const auto is_donated = [&](std::uint32_t leaf) { return donated.at(leaf) != 0; };
  if (std::any_of(use.forwarded.begin(), use.forwarded.end(), is_donated)) return;
  for (std::size_t i = 0; i < donated.size(); ++i) use.not_forwardable[i] |= donated[i];
  if (std::find(donated.begin(), donated.end(), 1) != donated.end()) use.donated = std::move(donated);
  target.takes_tuple = takes_tuple;
  target.jitted = jitted;
  target.callable = std::move(callable);
  target.stored = stored;
  call.progress().is_new = true;
  const Ref done = std::move(target.function);
}

}  // namespace partax
