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

// Of the values of Variables, and its class, which lives as long as the process.
struct ValueSlot : Slot {
  PyTypeObject* type = nullptr;
} value_slot;
ImmortalRef untraced;  // partax._jax.private.is_untraced

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

// The Variables with these numbers, as Python has them in memory, held by the match; empty where some object is none.
std::vector<PyObject*> variables_to_change(const KeyObjects& key, PyObject* owners, const LeafBuffer& leaves) {
  std::vector<std::uint32_t> numbers(static_cast<std::size_t>(PyBytes_GET_SIZE(owners)) / sizeof(std::uint32_t));
  std::memcpy(numbers.data(), PyBytes_AS_STRING(owners), numbers.size() * sizeof(std::uint32_t));
  std::vector<PyObject*> variables;
  variables.reserve(numbers.size());
  std::size_t hint = 0;
  for (const std::uint32_t number : numbers) {
    PyObject* owner = number < key.nodes.size() ? leaves.node(key.nodes[number], hint) : nullptr;
    if (owner == nullptr || !is_variable(owner) || !variable_value(owner)) return {};
    variables.push_back(owner);
  }
  return variables;
}

// A Variable is changed in the trace in which it was created alone; Python compares the two where there is one.
bool is_under_trace() { return Ref::checked(PyObject_CallNoArgs(untraced.get())).get() != Py_True; }

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
  const Items values(fields[kValues]);
  const bool changes_any = values.begin() != values.end();
  if (fields[kIsPlain] == Py_True && !has_read() && !(changes_any && is_under_trace())) {
    std::vector<PyObject*> variables;
    if (changes_any) variables = variables_to_change(*program.objects, fields[kOwners], leaves);
    changed_values_alone_ = variables.size() == static_cast<std::size_t>(values.end() - values.begin());
    std::vector<Ref> before;  // dropped at the end, since that may run any code
    before.reserve(variables.size());
    for (std::size_t i = 0; changed_values_alone_ && i < variables.size(); ++i) {
      before.push_back(replaced(variables[i], value_slot.place(variables[i]), values.begin()[i]));
    }
    if (changed_values_alone_) return Ref::borrow(fields[kResult]);
  }
  if (!has_read()) {
    const std::vector<PyObject*> objects = objects_in(*program.objects, leaves);
    objects_ = list_of(objects.data(), objects.size());
  }
  static Name method("apply");
  const Ref call_values = tuple_of(call_.values(), call_.size());
  const Away away;
  return Ref::checked(PyObject_CallMethodObjArgs(graph.get(), method.get(), call.get(), outcome.get(), objects_.get(),
                                                 call_values.get(), nullptr));
}

Ref variable_value(PyObject* variable) noexcept { return value_slot.owned_of(variable); }

bool is_variable(PyObject* object) noexcept {
  return value_slot.type != nullptr && PyObject_TypeCheck(object, value_slot.type);
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

void set_variable_slot(PyObject* descriptor, PyObject* is_untraced) {
  untraced.set(is_untraced);
  if (Py_TYPE(descriptor) != &PyMemberDescr_Type) return;
  const PyMemberDef& member = *reinterpret_cast<PyMemberDescrObject*>(descriptor)->d_member;
  if (member.type != T_OBJECT_EX) return;
  value_slot.type = reinterpret_cast<PyTypeObject*>(Py_NewRef(PyDescr_TYPE(descriptor)));
  value_slot.offset = member.offset;
}

}  // namespace partax
