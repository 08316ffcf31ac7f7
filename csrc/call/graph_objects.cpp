#include "call/graph_objects.h"

#include <structmember.h>

#include <algorithm>
#include <cstring>

#include "base/owned_reads.h"
#include "base/python_hooks.h"
#include "classes/layout.h"
#include "classes/type_table.h"

namespace partax {
namespace {

// The fields of partax._libraries.flax.graph_call.Outcome.
enum : std::uint8_t { kResult, kValues, kOwners, kIsPlain, kNumFields };

// A slot, and its class.
struct ClassSlot : Slot {
  PyTypeObject* type = nullptr;  // lives as long as the process
  bool is_of(PyTypeObject* other) const noexcept { return type != nullptr && PyType_IsSubtype(other, type) != 0; }
};

// Of Variables, and of their states the trace.
struct VariableSlots {
  ClassSlot value, state, trace;
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

bool is_object(const Node& node) noexcept {
  if (node.kind != Kind::kEntries) return false;
  const Layout::Aux aux = node.info->layout->aux;
  return aux == Layout::Aux::kItems || aux == Layout::Aux::kAttributes;
}

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
std::vector<PyObject*> found_in(const KeyObjects& key, const LeafBuffer& leaves) {
  std::vector<PyObject*> found;
  found.reserve(key.nodes.size());
  std::size_t hint = 0;
  for (const std::uint32_t node : key.nodes) {
    PyObject* object = leaves.node(node, hint);
    if (object == nullptr) return {};
    found.push_back(object);
  }
  return found;
}

// Whether they are those that were found to be all different. Only addresses are looked at: the ones known may be gone.
bool are_known_distinct(const KeyObjects& key, const LeafBuffer& leaves) {
  if (key.distinct.size() != key.nodes.size()) return false;
  std::size_t hint = 0;
  for (std::size_t i = 0; i < key.nodes.size(); ++i) {
    if (leaves.node(key.nodes[i], hint) != key.distinct[i]) return false;
  }
  return true;
}

// Which nodes the owners of new values are, by their numbers, which Python has in memory; null where they are not such.
std::shared_ptr<ChangedValues> changed_values(const KeyObjects& key, PyObject* owners) {
  if (!PyBytes_CheckExact(owners)) return {};
  auto changed = std::make_shared<ChangedValues>();
  changed->nodes.resize(static_cast<std::size_t>(PyBytes_GET_SIZE(owners)) / sizeof(std::uint32_t));
  std::memcpy(changed->nodes.data(), PyBytes_AS_STRING(owners), changed->nodes.size() * sizeof(std::uint32_t));
  for (std::uint32_t& node : changed->nodes) {
    if (node >= key.nodes.size()) return {};
    node = key.nodes[node];
  }
  changed->owners = Ref::borrow(owners);
  return changed;
}

// The variables that get new values, held by the match; empty where something else changes, or one of them does not
// belong to the current trace.
std::vector<PyObject*> changed_variables(KeyObjects& key, PyObject* owners, const LeafBuffer& leaves) {
  const Ref current = python::current_trace();
  std::shared_ptr<const ChangedValues> known = key.changed;
  if (!known || known->owners.get() != owners) known = changed_values(key, owners);
  if (!known) return {};
  std::vector<PyObject*> variables;
  std::vector<Ref> traces;
  variables.reserve(known->nodes.size());
  traces.reserve(known->nodes.size());
  std::size_t hint = 0;
  for (const std::uint32_t node : known->nodes) {
    PyObject* owner = leaves.node(node, hint);
    if (owner == nullptr || !slots.value.is_of(Py_TYPE(owner)) || !slots.value.owned_of(owner)) return {};
    const Ref state = slots.state.owned_of(owner);
    if (!state || !slots.trace.is_of(Py_TYPE(state.get()))) return {};
    variables.push_back(owner);
    traces.push_back(slots.trace.owned_of(state.get()));
    if (!traces.back()) return {};
  }
  // Comparing runs Python, so what was found equal is remembered, by identity.
  const auto is_same = [](const Ref& a, const Ref& b) { return a.get() == b.get(); };
  const auto is_current = [&](const Ref& trace) { return are_equal(trace.get(), current.get()); };
  const bool are_known = known->current && is_current(known->current) &&
                         std::equal(traces.begin(), traces.end(), known->traces.begin(), known->traces.end(), is_same);
  if (are_known) return variables;
  if (!std::all_of(traces.begin(), traces.end(), is_current)) return {};
  const auto now = std::make_shared<ChangedValues>(ChangedValues{known->owners, known->nodes, current, traces});
  const std::shared_ptr<const ChangedValues> before = std::exchange(key.changed, now);
  return variables;
}

}  // namespace

bool GraphObjects::are_in(const Entry& entry, const LeafBuffer& leaves) const {
  if (!entry.objects || !entry.objects->are_all || !are_arrays(leaves)) return false;
  KeyObjects& key = *entry.objects;
  if (are_known_distinct(key, leaves)) return true;
  std::vector<PyObject*> found = found_in(key, leaves);
  if (found.size() != key.nodes.size()) return false;
  std::vector<PyObject*> sorted = found;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) return false;
  key.distinct = std::move(found);
  return true;
}

void GraphObjects::read() {
  const Ref values = tuple_of(call_.values(), call_.size());
  const Ref read = python::read_graph(values);
  PyObject *taken = nullptr, *objects = nullptr;
  parse_tuple(read.get(), "O!O!", &PyTuple_Type, &taken, &PyList_Type, &objects);
  call_.take(Ref::borrow(taken));
  objects_ = Ref::borrow(objects);
}

void GraphObjects::learn(const Entry& entry, const LeafBuffer& leaves) const {
  if (!has_read() || !entry.objects || entry.objects->are_all) return;
  const std::vector<PyObject*> found = found_in(*entry.objects, leaves);
  const auto count = static_cast<std::size_t>(PyList_GET_SIZE(objects_.get()));
  entry.objects->are_all =
      found.size() == entry.objects->nodes.size() && found.size() == count &&
      std::equal(found.begin(), found.end(), reinterpret_cast<PyListObject*>(objects_.get())->ob_item);
}

Ref GraphObjects::apply(const Ref& outcome, const Entry& entry, const LeafBuffer& leaves) {
  if (!PyTuple_Check(outcome.get()) || PyTuple_GET_SIZE(outcome.get()) < kNumFields) return outcome;
  PyObject* const* const fields = reinterpret_cast<PyTupleObject*>(outcome.get())->ob_item;
  if (fields[kIsPlain] == Py_True && !has_read()) {
    is_plain_ = PyTuple_GET_SIZE(fields[kValues]) == 0;
    if (is_plain_) return Ref::borrow(fields[kResult]);
    const std::vector<PyObject*> variables = changed_variables(*entry.objects, fields[kOwners], leaves);
    is_plain_ = !variables.empty();
    std::vector<Ref> before;  // let go of at the end, since that may run any code
    before.reserve(variables.size());
    for (std::size_t i = 0; i < variables.size(); ++i) {
      PyObject* const value = PyTuple_GET_ITEM(fields[kValues], static_cast<Py_ssize_t>(i));
      before.push_back(replaced(variables[i], slots.value.place(variables[i]), value));
    }
    if (is_plain_) return Ref::borrow(fields[kResult]);
  }
  if (!has_read()) {
    const std::vector<PyObject*> found = found_in(*entry.objects, leaves);
    objects_ = list_of(found.data(), found.size());
  }
  return python::apply_changes(outcome, objects_, tuple_of(call_.values(), call_.size()));
}

Ref HeldVariable::now() const noexcept { return slots.value.owned_of(owner.get()); }

std::vector<HeldVariable> GraphObjects::variables(const Entry& entry, const LeafBuffer& leaves) const {
  std::vector<HeldVariable> found;
  const std::vector<Node>& nodes = entry.key.nodes;
  std::size_t next = 0, leaf = 0, hint = 0;
  for (const std::uint32_t node : entry.objects->nodes) {
    for (; next < node; ++next) leaf += nodes[next].kind == Kind::kDynamicLeaf ? 1 : 0;
    PyObject* owner = leaves.node(node, hint);
    if (owner == nullptr || !slots.value.is_of(Py_TYPE(owner))) continue;
    const auto is_leaf = [](const Node& it) { return it.kind == Kind::kDynamicLeaf; };
    const auto begin = nodes.begin() + node;
    const bool is_array = std::count_if(begin, begin + nodes[node].extent, is_leaf) == 1;
    Ref value = is_array ? Ref::borrow(leaves[leaf]) : slots.value.owned_of(owner);
    found.push_back({Ref::borrow(owner), std::move(value), node, leaf, is_array});
  }
  return found;
}

void note_objects(Entry& entry) {
  auto objects = std::make_unique<KeyObjects>();
  for (std::size_t i = 0; i < entry.key.nodes.size(); ++i) {
    if (is_object(entry.key.nodes[i])) objects->nodes.push_back(static_cast<std::uint32_t>(i));
  }
  for (const std::uint32_t i : objects->nodes) entry.key.mark_passthrough(i);
  entry.objects = std::move(objects);
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

void set_variable_slots(PyObject* value, PyObject* state, PyObject* trace) {
  set(slots.value, value);
  set(slots.state, state);
  set(slots.trace, trace);
  if (slots.state.type != slots.value.type) slots.value.type = nullptr;
}

}  // namespace partax
