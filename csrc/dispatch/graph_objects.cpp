// The objects in the arguments of a call that its function may change in place, such as those of Flax nnx. What needs
// Python is in `partax._libraries.flax.graph_call`.

#include <algorithm>

#include "base/python_hooks.h"
#include "dispatch/call.h"

namespace partax {
namespace {

// The first fields of partax._libraries.flax.graph_call.Outcome.
enum : std::uint8_t { kResult, kValues, kOwners, kIsPlain, kNumFields };

// Arrays have no identity that a program could see, unlike a jax.Ref.
bool are_arrays(const LeafBuffer& leaves) {
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (hooks.jax_array_type.is(Py_TYPE(leaves[i]))) continue;
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
  std::vector<std::pair<PyObject*, PyObject**>> variables;  // with the place of the value
  variables.reserve(values.size());
  std::size_t hint = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint32_t node = program.objects->nodes.at(number[i]);
    const Slot* const slot = variable_slot(program.key.nodes[node]);
    PyObject* const variable = slot == nullptr ? nullptr : leaves.node(node, hint);
    if (variable == nullptr || !slot->owned_of(variable)) return false;
    variables.emplace_back(variable, &slot->place(variable));
  }
  std::vector<Ref> before;  // dropped at the end, since that may run any code
  before.reserve(values.size());
  PyObject* const* value = values.begin();
  for (const auto& [variable, place] : variables) before.push_back(replaced(variable, *place, *value++));
  return true;
}

}  // namespace

bool Call::has_matched_objects(const Program& program) const {
  KeyObjects& key = *program.objects;
  if (!key.is_complete || !are_arrays(leaves_)) return false;
  std::vector<PyObject*> objects = objects_in(key, leaves_);
  if (objects.size() != key.nodes.size()) return false;
  if (objects == key.distinct) return true;
  std::vector<PyObject*> sorted = objects;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) return false;
  key.distinct = std::move(objects);
  return true;
}

Ref Call::ask_graph(Name& method, PyObject* outcome) {
  const Ref &graph = cache_.graph, &call = view(), call_values = values();
  const Away away;
  return Ref::checked(PyObject_CallMethodObjArgs(graph.get(), method.get(), call.get(), call_values.get(), outcome,
                                                 objects_.get(), nullptr));
}

void Call::drop_cached_objects() const {
  static Name context("context"), objects("tmp_static_cache");
  if (!cache_.graph) return;
  const Ref owner = attribute(cache_.graph.get(), context), left = attribute(owner.get(), objects);
  if (left.get() != Py_None) checked_int(PyObject_SetAttr(owner.get(), objects.get(), Py_None));
}

void Call::read_objects() {
  static Name method("read");
  if (!cache_.graph) return;
  const Ref read = ask_graph(method);
  bound_.replace_values(Ref::borrow(PyTuple_GET_ITEM(read.get(), 0)));
  objects_ = Ref::borrow(PyTuple_GET_ITEM(read.get(), 1));
}

Ref Call::apply_changes(const Ref& outcome) {
  static Name method("apply");
  KeyObjects& key = *program_->objects;
  if (objects_ && !key.is_complete) {
    const std::vector<PyObject*> objects = objects_in(key, leaves_);
    const Items all(objects_.get());
    key.is_complete = std::equal(objects.begin(), objects.end(), all.begin(), all.end());
  }
  if (!PyTuple_Check(outcome.get()) || PyTuple_GET_SIZE(outcome.get()) < kNumFields) return outcome;
  PyObject* const* const fields = Items(outcome.get()).begin();
  const Items values(fields[kValues]);
  // A Variable is changed in the trace in which it was created alone; Python compares the two where there is one.
  const bool may_set = values.begin() == values.end() || python::is_untraced().get() == Py_True;
  changed_values_alone_ =
      fields[kIsPlain] == Py_True && !objects_ && may_set && set_variables(*program_, values, fields[kOwners], leaves_);
  if (changed_values_alone_) return Ref::borrow(fields[kResult]);
  if (!objects_) {
    const std::vector<PyObject*> objects = objects_in(key, leaves_);
    objects_ = list_of(objects.data(), objects.size());
  }
  return ask_graph(method, outcome.get());
}

KeyObjects::KeyObjects(TreeSpec& key) {
  for (std::size_t i = 0; i < key.nodes.size(); ++i) {
    if (!is_object(key.nodes[i])) continue;
    nodes.push_back(static_cast<std::uint32_t>(i));
    key.mark_passthrough(i);
  }
}

}  // namespace partax
