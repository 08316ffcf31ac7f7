#include "pytree/tree_spec.h"

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
         std::all_of(node + 1, node + node->extent, [](const Node& child) { return child.kind == Kind::kDynamicLeaf; });
}

}  // namespace

bool have_same_nodes(const TreeSpec& a, const TreeSpec& b) {
  return a.statics.size() == b.statics.size() &&
         std::equal(a.nodes.begin(), a.nodes.end(), b.nodes.begin(), b.nodes.end(), is_same_node);
}

TreeSpec TreeSpec::sealed(PyObject* on_death) const {
  TreeSpec copy;
  copy.nodes = nodes;
  for (Node& node : copy.nodes) node.in_slots = is_in_slots(&node);
  copy.watched.resize(nodes.size());
  copy.watched_children.resize(statics.size());
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
  std::unordered_set<PyObject*> other_types;
  other.each_weakref([&](PyObject* weakref, bool) { other_types.insert(weak_target(weakref).get()); });
  for (Ref& type : types) {
    if (other_types.count(type.get()) > 0) type = Ref::checked(PyWeakref_NewRef(type.get(), nullptr));
  }
}

std::pair<std::size_t, std::string> TreeSpec::difference(const TreeSpec& other) const {
  const bool is_comparable = have_same_nodes(*this, other);
  for (std::size_t i = 0; is_comparable && i < statics.size(); ++i) {
    const StaticValue value = statics[i];  // user code may drop it
    const Ref now = other.statics[i].value();
    if (!now || of_value(i, [&] { return value.equals(now.get()); })) continue;
    return {i, value.difference(now.get())};
  }
  return {};
}

bool TreeSpec::equals(const TreeSpec& other) const {
  if (hash != other.hash || !have_same_nodes(*this, other)) return false;
  // User code may have this spec replaced, by one of another size; its values stay where they are.
  const StaticValue* const mine = statics.data();
  for (std::size_t i = 0, count = statics.size(); i < count; ++i) {
    if (!of_value(i, [&] { return mine[i].equals(other.statics[i]); })) return false;
  }
  return true;
}

}  // namespace partax
