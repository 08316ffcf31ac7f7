#include "call/graph_objects.h"

#include <algorithm>

#include "base/python_hooks.h"
#include "call/call.h"
#include "classes/layout.h"
#include "classes/type_table.h"

namespace partax {
namespace {

// The first fields of partax._libraries.flax.graph_call.Outcome.
enum : std::uint8_t { kResult, kValues, kOwners, kIsPlain, kNumFields };

bool is_object(const Node& node) noexcept { return node.kind == Kind::kEntries && node.info->layout->is_object; }

// Arrays have no identity that a program could see, unlike a jax.Ref.
bool are_arrays(const LeafBuffer& leaves) {
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (hooks().jax_array_type.is(Py_TYPE(leaves[i]))) continue;
    const LeafSort sort = TypeTable::instance().find(leaves[i]).sort;
    if (sort != LeafSort::kJaxArray && sort != LeafSort::kTracer && sort != LeafSort::kNumpyArray) return false;
  }
  return true;
}

// The objects in a match of the key, borrowed; empty where not all are there.
std::vector<PyObject*> objects_in(const KeyObjects& key, const LeafBuffer& leaves) {
  std::vector<PyObject*> objects;
  objects.reserve(key.nodes.size());
  std::size_t hint = 0;
  for (const std::uint32_t node : key.nodes) {
    objects.push_back(leaves.node(node, hint));
    if (objects.back() == nullptr) return {};
  }
  return objects;
}

// Sets the Variables with these numbers, as Python has them in memory, to the values; none where some object is none.
bool set_variables(const Program& program, const Items& values, PyObject* owners, const LeafBuffer& leaves) {
  const auto* number = reinterpret_cast<const std::uint32_t*>(PyBytes_AS_STRING(owners));
  const auto count = static_cast<std::size_t>(values.end() - values.begin());
  std::vector<PyObject**> places;
  std::vector<PyObject*> variables;
  places.reserve(count);
  variables.reserve(count);
  std::size_t hint = 0;
  for (std::size_t i = 0; i < count; ++i, ++number) {
    const std::uint32_t node = program.objects->nodes.at(*number);
    const Slot* const slot = variable_slot(program.key.nodes[node]);
    PyObject* const variable = slot == nullptr ? nullptr : leaves.node(node, hint);
    if (variable == nullptr || !slot->owned_of(variable)) return false;
    variables.push_back(variable);
    places.push_back(&slot->place(variable));
  }
  std::vector<Ref> before;  // dropped at the end, since that may run any code
  before.reserve(count);
  for (std::size_t i = 0; i < count; ++i) before.push_back(replaced(variables[i], *places[i], values.begin()[i]));
  return true;
}

}  // namespace

bool GraphObjects::are_matched(const Program& program, const LeafBuffer& leaves) const {
  if (!program.objects || !program.objects->is_complete || !are_arrays(leaves)) return false;
  KeyObjects& key = *program.objects;
  std::vector<PyObject*> objects = objects_in(key, leaves);
  if (objects.size() != key.nodes.size()) return false;
  if (objects == key.distinct) return true;
  std::vector<PyObject*> sorted = objects;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) return false;
  key.distinct = std::move(objects);
  return true;
}

void GraphObjects::read(Call& call) {
  const Ref &graph = call.cache().graph, &view = call.view();
  static Name method("read");
  const Ref call_values = tuple_of(call_.values(), call_.size());
  const Ref read = [&] {
    const Away away;
    return Ref::checked(PyObject_CallMethodObjArgs(graph.get(), method.get(), view.get(), call_values.get(), nullptr));
  }();
  PyObject *values = nullptr, *objects = nullptr;
  parse_tuple(read.get(), "O!O!", &PyTuple_Type, &values, &PyList_Type, &objects);
  call_.replace_values(Ref::borrow(values));
  objects_ = Ref::borrow(objects);
}

void GraphObjects::record_completeness(const Program& program, const LeafBuffer& leaves) const {
  if (!has_read() || !program.objects || program.objects->is_complete) return;
  const std::vector<PyObject*> objects = objects_in(*program.objects, leaves);
  const Items all(objects_.get());
  program.objects->is_complete = objects.size() == program.objects->nodes.size() &&
                                 std::equal(objects.begin(), objects.end(), all.begin(), all.end());
}

Ref GraphObjects::apply(Call& call, const Ref& outcome, const Program& program, const LeafBuffer& leaves) {
  if (!PyTuple_Check(outcome.get()) || PyTuple_GET_SIZE(outcome.get()) < kNumFields) return outcome;
  PyObject* const* const fields = Items(outcome.get()).begin();
  const Items values(fields[kValues]);
  // A Variable is changed in the trace in which it was created alone; Python compares the two where there is one.
  const bool may_set = values.begin() == values.end() || python::is_untraced().get() == Py_True;
  changed_values_alone_ =
      fields[kIsPlain] == Py_True && !has_read() && may_set && set_variables(program, values, fields[kOwners], leaves);
  if (changed_values_alone_) return Ref::borrow(fields[kResult]);
  if (!has_read()) {
    const std::vector<PyObject*> objects = objects_in(*program.objects, leaves);
    objects_ = list_of(objects.data(), objects.size());
  }
  const Ref &graph = call.cache().graph, &view = call.view();
  static Name method("apply");
  const Ref call_values = tuple_of(call_.values(), call_.size());
  const Away away;
  return Ref::checked(PyObject_CallMethodObjArgs(graph.get(), method.get(), view.get(), outcome.get(), objects_.get(),
                                                 call_values.get(), nullptr));
}

const Slot* variable_slot(const Node& node) noexcept {
  return is_object(node) && !node.info->layout->children.empty() ? node.info->layout->children.data() : nullptr;
}

void mark_objects(Program& program) {
  auto objects = std::make_unique<KeyObjects>();
  for (std::size_t i = 0; i < program.key.nodes.size(); ++i) {
    if (!is_object(program.key.nodes[i])) continue;
    objects->nodes.push_back(static_cast<std::uint32_t>(i));
    program.key.mark_passthrough(i);
  }
  program.objects = std::move(objects);
}

}  // namespace partax
