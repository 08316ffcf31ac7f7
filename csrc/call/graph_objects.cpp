#include "call/graph_objects.h"

#include <structmember.h>

#include <algorithm>
#include <cstring>

#include "base/owned_reads.h"
#include "call/call.h"
#include "classes/layout.h"
#include "classes/type_table.h"

namespace partax {
namespace {

// The first fields of partax._libraries.flax.graph_call.Outcome.
enum : std::uint8_t { kResult, kValues, kOwners, kIsPlain, kNumFields };

// A slot, and its class.
struct ClassSlot : Slot {
  PyTypeObject* type = nullptr;  // lives as long as the process
  bool is_of(PyObject* object) const noexcept { return type != nullptr && PyObject_TypeCheck(object, type); }
};

// Of Variables, and of their states the trace.
struct VariableSlots {
  ClassSlot value, state, trace;
  ImmortalRef current_trace;
} slots;

struct StaticCache {
  PyObject* owner = nullptr;  // lives as long as the process
  PyObject* name = nullptr;
} static_cache;

void set(ClassSlot& slot, PyObject* descriptor) {
  if (Py_TYPE(descriptor) != &PyMemberDescr_Type) return;
  const PyMemberDef& member = *reinterpret_cast<PyMemberDescrObject*>(descriptor)->d_member;
  if (member.type != T_OBJECT_EX) return;
  slot.type = reinterpret_cast<PyTypeObject*>(Py_NewRef(PyDescr_TYPE(descriptor)));
  slot.offset = member.offset;
}

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

// Whether traces are those that were found equal before: by identity; the first, which jax makes at each call, by `==`.
bool were_equal(const std::vector<Ref>& traces, const std::vector<Ref>& earlier_traces) {
  const auto is_same = [](const Ref& a, const Ref& b) { return a.get() == b.get(); };
  if (traces.size() != earlier_traces.size() ||
      !std::equal(traces.begin() + 1, traces.end(), earlier_traces.begin() + 1, is_same)) {
    return false;
  }
  const Ref current = Ref::borrow(earlier_traces[0].get());  // another thread may replace it while Python compares
  return are_equal(traces[0].get(), current.get());
}

// The Variables with these numbers, as Python has them in memory, held by the match; empty where some object is none,
// or does not belong to the current trace.
std::vector<PyObject*> variables_to_change(KeyObjects& key, PyObject* owners, const LeafBuffer& leaves) {
  std::vector<std::uint32_t> numbers(static_cast<std::size_t>(PyBytes_GET_SIZE(owners)) / sizeof(std::uint32_t));
  std::memcpy(numbers.data(), PyBytes_AS_STRING(owners), numbers.size() * sizeof(std::uint32_t));
  std::vector<PyObject*> variables;
  std::vector<Ref> traces{Ref::checked(PyObject_CallNoArgs(slots.current_trace.get()))};
  variables.reserve(numbers.size());
  traces.reserve(numbers.size() + 1);
  std::size_t hint = 0;
  for (const std::uint32_t number : numbers) {
    PyObject* owner = number < key.nodes.size() ? leaves.node(key.nodes[number], hint) : nullptr;
    const bool is_set = owner != nullptr && is_variable(owner) && variable_value(owner);
    const Ref state = is_set ? slots.state.owned_of(owner) : Ref();
    if (!state || !slots.trace.is_of(state.get())) return {};
    variables.push_back(owner);
    traces.push_back(slots.trace.owned_of(state.get()));
    if (!traces.back()) return {};
  }
  // Comparing runs Python, so what was found equal is remembered.
  if (were_equal(traces, key.traces)) return variables;
  const auto is_current = [&](const Ref& trace) { return are_equal(trace.get(), traces[0].get()); };
  if (!std::all_of(traces.begin(), traces.end(), is_current)) return {};
  key.traces.swap(traces);
  return variables;
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

void GraphObjects::read(const Ref& graph, const Ref& call) {
  static Name method("read");
  const Ref call_values = tuple_of(call_.values(), call_.size());
  const Ref read = [&] {
    const Away away;
    return Ref::checked(PyObject_CallMethodObjArgs(graph.get(), method.get(), call.get(), call_values.get(), nullptr));
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

Ref GraphObjects::apply(const Ref& graph, const Ref& call, const Ref& outcome, const Program& program,
                        const LeafBuffer& leaves) {
  if (!PyTuple_Check(outcome.get()) || PyTuple_GET_SIZE(outcome.get()) < kNumFields) return outcome;
  PyObject* const* const fields = Items(outcome.get()).begin();
  if (fields[kIsPlain] == Py_True && !has_read()) {
    const Items values(fields[kValues]);
    std::vector<PyObject*> variables;
    if (values.begin() != values.end()) variables = variables_to_change(*program.objects, fields[kOwners], leaves);
    changed_values_alone_ = variables.size() == static_cast<std::size_t>(values.end() - values.begin());
    if (changed_values_alone_) {
      std::vector<Ref> before;  // dropped at the end, since that may run any code
      before.reserve(variables.size());
      for (std::size_t i = 0; i < variables.size(); ++i) {
        before.push_back(replaced(variables[i], slots.value.place(variables[i]), values.begin()[i]));
      }
      return Ref::borrow(fields[kResult]);
    }
  }
  if (!has_read()) {
    const std::vector<PyObject*> objects = objects_in(*program.objects, leaves);
    objects_ = list_of(objects.data(), objects.size());
  }
  static Name method("apply");
  const Ref values = tuple_of(call_.values(), call_.size());
  const Away away;
  return Ref::checked(PyObject_CallMethodObjArgs(graph.get(), method.get(), call.get(), outcome.get(), objects_.get(),
                                                 values.get(), nullptr));
}

Ref variable_value(PyObject* variable) noexcept { return slots.value.owned_of(variable); }

bool is_variable(PyObject* object) noexcept { return slots.value.is_of(object); }

void mark_objects(Program& program) {
  auto objects = std::make_unique<KeyObjects>();
  for (std::size_t i = 0; i < program.key.nodes.size(); ++i) {
    if (!is_object(program.key.nodes[i])) continue;
    objects->nodes.push_back(static_cast<std::uint32_t>(i));
    program.key.mark_passthrough(i);
  }
  program.objects = std::move(objects);
}

void take_static_cache() {
  if (static_cache.owner == nullptr) return;
  const Ref left = Ref::checked(PyObject_GetAttr(static_cache.owner, static_cache.name));
  if (left.get() != Py_None) checked_int(PyObject_SetAttr(static_cache.owner, static_cache.name, Py_None));
}

void set_static_cache(PyObject* owner, PyObject* name) {
  static_cache.owner = Py_NewRef(owner);
  static_cache.name = Py_NewRef(name);
}

void set_variable_slots(PyObject* value, PyObject* state, PyObject* trace, PyObject* current_trace) {
  set(slots.value, value);
  set(slots.state, state);
  set(slots.trace, trace);
  slots.current_trace.set(current_trace);
  if (slots.state.type != slots.value.type) slots.value.type = nullptr;
}

}  // namespace partax
