#include "tree/tree_spec.h"

#include <algorithm>
#include <unordered_map>
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
  std::unordered_map<PyObject*, std::size_t> first;  // an activation of many layers has one record
  for (const StaticValue& value : statics) {
    const std::size_t i = copy.statics.size();
    const auto earlier = first.find(value.identity());
    copy.statics.push_back(earlier != first.end() ? copy.statics[earlier->second]
                                                  : of_value(i, [&] { return value.sealed(on_death, callables); }));
    if (copy.statics.back().is_callable()) first.emplace(value.identity(), i);
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

std::pair<std::size_t, std::string> TreeSpec::difference(const TreeSpec& other) const {
  const bool is_like = nodes.size() == other.nodes.size() && statics.size() == other.statics.size() &&
                       std::equal(nodes.begin(), nodes.end(), other.nodes.begin(), is_same_node);
  for (std::size_t i = 0; is_like && i < statics.size(); ++i) {
    const StaticValue value = statics[i];  // user code may drop it
    const Ref now = other.statics[i].value();
    if (!now || of_value(i, [&] { return value.equals(now.get()); })) continue;
    return {i, value.difference(now.get())};
  }
  return {};
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

}  // namespace partax
