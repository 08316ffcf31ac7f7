#include "tree/tree_spec.h"

#include <algorithm>
#include <unordered_set>

namespace partax {

namespace {

bool is_in_slots(const Node* node) noexcept {
  if (node->kind != Kind::kEntries) return false;
  const Layout& layout = *node->info->layout;
  const bool is_slot =
      layout.dictionary == Layout::Dictionary::kNone || layout.dictionary == Layout::Dictionary::kInSlot;
  return is_slot && layout.items.empty() && node->arity == layout.children.size() && node->extent == node->arity + 1 &&
         std::all_of(node + 1, node + node->extent, [](const Node& it) { return it.kind == Kind::kDynamicLeaf; });
}

}  // namespace

TreeSpec TreeSpec::sealed(PyObject* on_death) const {
  TreeSpec copy;
  copy.nodes = nodes;
  for (Node& node : copy.nodes) node.in_slots = is_in_slots(&node);
  copy.infos = infos;
  copy.num_dynamic = num_dynamic;
  copy.callables = callables;
  copy.hash = hash;
  copy.statics.reserve(statics.size());
  copy.identity.reserve(statics.size());
  std::unordered_set<PyObject*> seen;  // an activation of many layers is looked into once
  for (const StaticValue& value : statics) {
    copy.statics.push_back(of_value(copy.statics.size(), [&] { return value.sealed(on_death, callables); }));
    StaticValue& last = copy.statics.back();
    if (last.is_callable() && !seen.insert(value.identity()).second) last.set_repeated();
    copy.identity.push_back(copy.statics.back().identity());
  }
  for (const TypeInfoPtr& info : infos) {
    auto* type = reinterpret_cast<PyObject*>(info->type);
    copy.types.push_back(info->type->tp_flags & Py_TPFLAGS_HEAPTYPE ? Ref::checked(PyWeakref_NewRef(type, on_death))
                                                                    : Ref::borrow(type));
  }
  return copy;
}

void TreeSpec::weaken_types(const TreeSpec& other) {
  std::unordered_set<PyObject*> known;
  other.each_weakref([&](PyObject* weakref, bool) { known.insert(weak_target(weakref).get()); });
  for (Ref& type : types) {
    if (known.count(type.get()) > 0) type = Ref::checked(PyWeakref_NewRef(type.get(), nullptr));
  }
}

void TreeSpec::guard(const TreeSpec& values, PyObject* function) {
  if (callables == Callables::kByIdentity) return;
  std::vector<Ref> roots;
  for (std::size_t i = 0; i < infos.size(); ++i) {
    if ((infos[i]->type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0) continue;
    roots.push_back(Ref::borrow(reinterpret_cast<PyObject*>(infos[i]->type)));
    guarded_types.push_back(static_cast<std::uint32_t>(i));
  }
  for (std::size_t i = 0; i < statics.size(); ++i) {
    Ref value = values.statics[i].value();
    if (!value || is_plain(value.get())) continue;
    roots.push_back(std::move(value));
    guarded.push_back(static_cast<std::uint32_t>(i));
  }
  guards = Guards::of(roots, function);
}

bool TreeSpec::is_proven(const ValueAt& value_at, PyObject* function, std::string* difference, bool loosely) const {
  if (guards == nullptr) return false;
  const std::shared_ptr<const Guards> keep = guards;
  const auto root = [&](std::size_t i) {
    if (i < guarded_types.size()) return Ref::borrow(reinterpret_cast<PyObject*>(infos[guarded_types[i]]->type));
    i -= guarded_types.size();
    return i < guarded.size() ? value_at(guarded[i]) : Ref::borrow(function);
  };
  return keep->match(root, difference, loosely);
}

bool TreeSpec::holds_callables() const noexcept {
  return std::any_of(statics.begin(), statics.end(), [](const auto& value) { return value.holds_callables(); });
}

bool TreeSpec::observe(const TreeSpec& values, PyObject* function, bool by_trace) const {
  if (statics.size() != values.statics.size()) return false;
  bool changes = false;
  for (std::size_t i = 0; i < statics.size(); ++i) {
    if (!statics[i].holds_callables()) continue;
    const Ref value = values.statics[i].value();
    changes = (value && statics[i].has_changed(value.get(), by_trace)) || changes;
  }
  if (guards == nullptr || !guards->proven()) return changes;
  std::string difference = "what it changes while it is traced";
  const bool is_other = by_trace && changes;
  if (is_other || !is_proven(values.values(), function, &difference, true)) guards->disprove(difference);
  return changes;
}

void TreeSpec::stop_sharing(const std::string& reason) const {
  if (guards != nullptr) guards->disprove(reason);
}

bool TreeSpec::survives_owner() const noexcept {
  return is_open() && !guards->holds_arrays() &&
         std::all_of(statics.begin(), statics.end(), [](const auto& value) { return value.survives_owner(); });
}

bool TreeSpec::equals(const TreeSpec& other) const {
  const auto all = [](const TreeSpec& spec) { return SpecPart{0, spec.nodes.size(), 0, spec.statics.size()}; };
  return hash == other.hash && equals(all(*this), other, all(other));
}

bool TreeSpec::equals(const SpecPart& part, const TreeSpec& other, const SpecPart& others) const {
  const std::size_t num_nodes = part.end_node - part.first_node, num_statics = part.end_static - part.first_static;
  if (num_nodes != others.end_node - others.first_node || num_statics != others.end_static - others.first_static) {
    return false;
  }
  const Node* const first = nodes.data() + part.first_node;
  if (!std::equal(first, first + num_nodes, other.nodes.data() + others.first_node, is_same_node)) return false;
  // User code may have this spec replaced, by one of another size; its values stay where they are.
  const StaticValue* const mine = statics.data() + part.first_static;
  for (std::size_t i = 0; i < num_statics; ++i) {
    const StaticValue& its = other.statics[others.first_static + i];
    if (!of_value(part.first_static + i, [&] { return mine[i].equals(its); })) return false;
  }
  return true;
}

bool TreeSpec::equals_as_proven(const TreeSpec& other) const {
  const MadeAnew made_anew;
  if (!equals(other)) return false;
  return !made_anew.any() || (is_open() && is_proven(other.values()));
}

}  // namespace partax
