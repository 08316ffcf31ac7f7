// The static part of a tree: a pre-order list of nodes and the static values that belong to them.
#pragma once

#include <memory>
#include <vector>

#include "base/python_api.h"
#include "pytree/watched_dict.h"
#include "static_key/static_value.h"
#include "types/type_table.h"

namespace partax {

struct Node {
  Kind kind;
  bool has_wrapper_fields : 1;  // kModule: the values of hooks.wrapper_names follow the static fields
  bool may_be_number : 1;       // kDynamicLeaf: `dynamic` may also select non-arrays
  bool in_slots : 1;        // if sealed: a kEntries node with arrays in slots, and static values alone in a dictionary
  bool is_passthrough : 1;  // of a key: a call keeps this node, for a result may be it; of a result: it is such a node
  std::uint16_t entries;    // kEntries: those of the dictionary
  std::uint32_t arity;      // children; for runs the number of leaves
  std::uint32_t extent;     // nodes of this subtree, this one included
  std::uint32_t first_static;  // its own static values: keys, aux data, or the leaf itself
  const TypeInfo* info;        // null for leaves and for kCall
};

// Whether it is an nnx object, which has an identity.
inline bool is_object(const Node& node) noexcept { return node.kind == Kind::kEntries && node.info->layout->is_object; }
// Where a Variable of this node has its value; null for another node.
inline const Slot* variable_slot(const Node& node) noexcept {
  return is_object(node) && !node.info->layout->children.empty() ? node.info->layout->children.data() : nullptr;
}

// Some nodes of a spec that follow each other, and their static values.
struct SpecPart {
  std::size_t first_node = 0, end_node = 0, first_static = 0, end_static = 0;
};

// Except for the static values of the two.
inline bool is_same_node(const Node& a, const Node& b) noexcept {
  return a.kind == b.kind && a.info == b.info && a.arity == b.arity && a.has_wrapper_fields == b.has_wrapper_fields &&
         a.entries == b.entries;
}

// Every family's own static values, in `statics` from `first_static` on:
//   kStaticLeaf the value; kStaticRun the values; kDict, kOrderedDict the keys; kDefaultDict the factory and the keys;
//   kModule, kDataclass, kDeclared the static fields; kRegistered the aux data; kStatic the node itself;
//   kEntries the static slots, the static entries, and the keys of the dictionary, those of children first.
struct TreeSpec {
  std::vector<Node> nodes;
  std::vector<StaticValue> statics;
  std::vector<PyObject*> identity;  // if sealed or a result's, per static: what is surely this value, or null
  // If sealed: in which order its dictionaries had their keys last, a guess that makes reading one a single pass. Empty
  // while none had another order than its static values.
  mutable std::vector<std::uint32_t> key_order;
  // If sealed, per node: its dictionary, where that is of an object in slots or its only attribute; and the children of
  // the latter, each where its key is among the static values, as long as the dictionary is unchanged and owns them.
  mutable std::vector<WatchedDict> watched;
  mutable std::vector<PyObject*> watched_children;
  std::vector<TypeInfoPtr> infos;  // keeps every Node::info alive
  std::vector<Ref> types;          // the infos' types: strong, or weak in a sealed spec
  std::size_t num_dynamic = 0;
  std::size_t num_passthroughs = 0;  // of the nodes
  Callables callables = Callables::kByStructure;
  std::size_t hash = 0;
  // If made keyed: of each node that is named by functions, jax's keys of its children, a tuple.
  std::vector<Ref> child_keys;

  // A node with all below it.
  SpecPart part(std::size_t node) const noexcept {
    const std::size_t end = node + nodes[node].extent;
    return {node, end, nodes[node].first_static, end < nodes.size() ? nodes[end].first_static : statics.size()};
  }
  // The end of a node's own static values.
  std::size_t end_statics(std::size_t node) const noexcept {
    return node + 1 < nodes.size() ? nodes[node + 1].first_static : statics.size();
  }
  // Has calls of this key keep a node.
  void mark_passthrough(std::size_t node) noexcept {
    num_passthroughs += nodes[node].is_passthrough ? 0 : 1;
    nodes[node].is_passthrough = true;
  }
  // A copy for a key: snapshots, weak references with `on_death` as callback. Raises what `equals` does.
  TreeSpec sealed(PyObject* on_death) const;
  // For a result: its types are held weakly where `other` (a sealed spec) knows them already.
  void weaken_types(const TreeSpec& other);
  // True if both are the same static part. May run user code; the origin of a WalkError is the static value's index.
  bool equals(const TreeSpec& other) const;
  // Why another spec of the same structure is not equal, if that is due to a callable: the index of the static value,
  // and the reason.
  std::pair<std::size_t, std::string> difference(const TreeSpec& other) const;
  // Calls `visit` with the record of each callable in a sealed spec.
  template <typename Visit>
  void each_callable(Visit&& visit) const {
    for (const StaticValue& value : statics) value.each_callable(visit);
  }

  int traverse(visitproc visit, void* arg) const { return visit_all(visit, arg, types, statics); }

  template <typename Visit>
  void each_weakref(Visit&& visit) const {
    for (const Ref& type : types) {
      if (PyWeakref_CheckRef(type.get())) visit(type.get(), false);
    }
    for (const StaticValue& value : statics) value.each_weakref(visit);
  }
};

// Whether two specs differ in their static values at most; runs no user code.
bool have_same_nodes(const TreeSpec& a, const TreeSpec& b);

// The index of the first own static value that is a key or an aux datum of `node` after a factory.
inline std::size_t first_key_index(const Node& node) noexcept {
  return node.first_static + (node.kind == Kind::kDefaultDict ? 1 : 0);
}

// Of a kEntries node: how many of the dictionary's entries are children, the index of the first static entry, and that
// of the first key.
struct EntryPlaces {
  explicit EntryPlaces(const Node& node)
      : children(node.info->layout->items.empty() ? node.arity - node.info->layout->children.size() : 0),
        statics(node.first_static + node.info->layout->statics.size()),
        keys(statics + node.entries - children) {}
  std::size_t children, statics, keys;
};

}  // namespace partax
