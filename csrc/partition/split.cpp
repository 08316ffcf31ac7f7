#include "partition/split.h"

#include <algorithm>
#include <limits>

#include "base/error_path.h"
#include "base/python_hooks.h"
#include "base/stack_room.h"
#include "partition/filters.h"
#include "partition/one_level.h"
#include "tree/spec_data.h"

namespace partax {
namespace {

[[noreturn]] void changed_while_walking() {
  throw WalkError::diagnosed(PyExc_RuntimeError, "the node changed while partax was walking it");
}

bool is_leaf_kind(Kind kind) noexcept { return kind == Kind::kDynamicLeaf || kind == Kind::kDynamicRun; }

// ---- The walks.

// Keeps the nodes of a tree, in the order of its spec.
class NodeRecorder final : public WalkObserver {
 public:
  explicit NodeRecorder(std::vector<Ref>& nodes) : nodes_(nodes) {}
  bool node(PyObject* object) override {
    nodes_.push_back(Ref::borrow(object));
    return false;
  }
  bool leaf(PyObject*) override { return true; }

 private:
  std::vector<Ref>& nodes_;
};

// In a second walk of a tree, makes the leaves of the rest static. Keeps the nodes, which may be others than in the
// first walk if user code has changed the tree.
class RestSeparator final : public WalkObserver {
 public:
  RestSeparator(const SplitTree& whole, std::uint32_t rest, SplitTree& result, std::vector<Ref>& nodes)
      : whole_(whole), rest_(rest), result_(result), nodes_(nodes) {}
  bool node(PyObject* object) override {
    if (next_ < whole_.leaves.size() && whole_.leaves[next_] == object) return true;
    nodes_.push_back(Ref::borrow(object));
    return false;
  }
  bool leaf(PyObject*) override {
    if (next_ == whole_.leaves.size()) changed_while_walking();
    const std::uint32_t part = whole_.part[next_++];
    if (part != rest_) result_.part.push_back(part);
    return part != rest_;
  }

 private:
  const SplitTree& whole_;
  std::uint32_t rest_;
  SplitTree& result_;
  std::vector<Ref>& nodes_;
  std::size_t next_ = 0;
};

void walk(SplitTree& result, PyObject* tree, PyObject* is_leaf, WalkObserver& observer) {
  FlattenOptions options = every_leaf(is_leaf);
  options.dynamic_runs = true;
  options.observer = &observer;
  Flattener(result.spec, result.leaves, options).tree(tree);
}

// The nodes of a tree by their index in the spec; null for leaves.
std::vector<PyObject*> nodes_by_index(const TreeSpec& spec, const std::vector<Ref>& nodes) {
  std::vector<PyObject*> by_index(spec.nodes.size(), nullptr);
  std::size_t next = 0;
  for (std::size_t i = 0; i < spec.nodes.size(); ++i) {
    const Kind kind = spec.nodes[i].kind;
    const bool is_leaf = is_leaf_kind(kind) || kind == Kind::kStaticLeaf || kind == Kind::kStaticRun;
    if (!is_leaf && next < nodes.size()) by_index[i] = nodes[next++].get();
  }
  return by_index;
}

// What Python makes the paths of the leaves from.
Ref names_of(const TreeSpec& spec, const std::vector<PyObject*>& nodes) {
  std::vector<Ref> child_keys;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (is_named_by_functions(spec.nodes[i].kind)) child_keys.push_back(python::child_keys(nodes[i]));
  }
  return node_names(spec, child_keys);
}

// ---- The labels.

// Where a filter matches a leaf: the index in the spec of the node that it matches, so that what is nearer to the root
// is less.
using Label = std::uint32_t;
constexpr Label kNever = std::numeric_limits<Label>::max();
constexpr Label kAtLeaf = kNever - 1;

// A subtree: nodes of the spec, and leaves. A leaf of a run has no node.
struct Subtree {
  std::size_t node, end_node, leaf, end_leaf;
};

// The labels of the leaves of a subtree by a filter, or by the nearest of several.
class Labels {
 public:
  Labels(const Subtree& place, Label label) : first_(place.leaf), labels_(place.end_leaf - place.leaf, label) {}
  Label& operator[](std::size_t leaf) noexcept { return labels_[leaf - first_]; }
  void lower(std::size_t leaf, Label label) noexcept { (*this)[leaf] = std::min((*this)[leaf], label); }

 private:
  std::size_t first_;
  std::vector<Label> labels_;
};

class Labeler {
 public:
  // `nodes` has those of the spec, in order.
  Labeler(const SplitTree& tree, const std::vector<Ref>& nodes)
      : tree_(tree), nodes_(nodes_by_index(tree.spec, nodes)) {
    std::size_t leaf = 0;
    for (const Node& node : tree.spec.nodes) {
      first_leaf_.push_back(leaf);
      if (is_leaf_kind(node.kind)) leaf += std::max(node.arity, 1U);
    }
    first_leaf_.push_back(leaf);
  }

  Subtree root() const { return {0, tree_.spec.nodes.size(), 0, tree_.leaves.size()}; }

  // Lowers the label of each leaf of `place` that the filter takes nearer to the root than its label says. What is said
  // of leaves alone is asked only of those that have none.
  void label(const Filter& filter, const Subtree& place, Labels& labels) {
    const auto ask = [&](auto&& matches) {
      for (std::size_t leaf = place.leaf; leaf < place.end_leaf; ++leaf) {
        if (labels[leaf] != kNever) continue;
        if (below([&] { return key_of(leaf); }, [&] { return matches(leaf); })) labels[leaf] = kAtLeaf;
      }
    };
    if (!stack_.is_free()) refuse_nested_filter();
    switch (filter.op) {
      case Filter::Op::kBool:
        return ask([&](std::size_t) { return filter.value; });
      case Filter::Op::kType:
        label_nodes(filter, place, labels);
        [[fallthrough]];
      case Filter::Op::kBuiltin:
      case Filter::Op::kCallable: {
        LeafTest answers(filter);
        return ask([&](std::size_t leaf) { return answers.holds(tree_.leaves[leaf]); });
      }
      case Filter::Op::kPath: {
        const Ref mask = python::match_paths(filter.object, names());
        const char* const is_match = PyBytes_AS_STRING(mask.get());
        return ask([&](std::size_t leaf) { return is_match[leaf] != 0; });
      }
      case Filter::Op::kAny:
        for (const Filter& member : filter.members) label(member, place, labels);
        return;
      case Filter::Op::kAll:
        return label_all(filter, place, labels);
      case Filter::Op::kNot: {
        Labels member = asked_of(place, labels);
        label(filter.members[0], place, member);
        for (std::size_t leaf = place.leaf; leaf < place.end_leaf; ++leaf) {
          if (member[leaf] == kNever) labels[leaf] = kAtLeaf;
        }
        return;
      }
      case Filter::Op::kPrefix:
        return label_below(filter, place, labels);
    }
  }

 private:
  // The labels with which a member of a combination begins: kNever for the leaves that it is asked about.
  static Labels asked_of(const Subtree& place, Labels& labels) {
    Labels member(place, kNever);
    for (std::size_t leaf = place.leaf; leaf < place.end_leaf; ++leaf) {
      if (labels[leaf] != kNever) member[leaf] = kAtLeaf;
    }
    return member;
  }

  // Where the first of the members matches that all take the leaf.
  void label_all(const Filter& filter, const Subtree& place, Labels& labels) {
    // A type may take a leaf nearer to the root than its label says.
    Labels nearest(place, kAtLeaf), next = filter.has_types ? Labels(place, kNever) : asked_of(place, labels);
    for (const Filter& member : filter.members) {
      Labels of_member = next;
      label(member, place, of_member);
      for (std::size_t leaf = place.leaf; leaf < place.end_leaf; ++leaf) {
        if (of_member[leaf] == kNever) {
          nearest[leaf] = kNever;
          next[leaf] = kAtLeaf;
        } else if (nearest[leaf] != kNever) {
          nearest.lower(leaf, of_member[leaf]);
        }
      }
    }
    for (std::size_t leaf = place.leaf; leaf < place.end_leaf; ++leaf) {
      labels.lower(leaf, nearest[leaf]);
    }
  }

  void label_nodes(const Filter& filter, const Subtree& place, Labels& labels) {
    LeafTest answers(filter);
    for (std::size_t node = place.node; node < place.end_node;) {
      const std::size_t end = node + tree_.spec.nodes[node].extent;
      if (nodes_[node] == nullptr || !answers.holds(nodes_[node])) {
        ++node;
        continue;
      }
      for (std::size_t leaf = first_leaf_[node]; leaf < first_leaf_[end]; ++leaf) {
        labels.lower(leaf, static_cast<Label>(node));
      }
      node = end;
    }
  }

  // Labels the children of a node by those of a prefix tree.
  void label_below(const Filter& filter, const Subtree& place, Labels& labels) {
    PyObject* const prefix = filter.object.get();
    PyObject* const node_object = place.node < place.end_node ? nodes_[place.node] : nullptr;
    PyObject* const object = node_object == nullptr ? tree_.leaves[place.leaf] : node_object;
    if (prefix == Py_None && object == Py_None) return;
    if (node_object == nullptr && is_node(object)) {
      throw WalkError::diagnosed(PyExc_ValueError,
                                 "found a node that `is_leaf` makes a leaf, expected the structure of "
                                 "the filter; end the filter here");
    }
    Flat prefixes, level;
    flatten_into(prefixes, prefix, children_only());
    open_alike(prefixes, object, level, "the filter");
    const std::size_t count = prefixes.leaves.size();
    if (tree_.spec.nodes[place.node].arity != count) changed_while_walking();
    std::size_t node = place.node + 1, in_run = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const Node& child = tree_.spec.nodes[node];
      const std::size_t leaf = first_leaf_[node] + in_run;
      Subtree there{node, node + child.extent, leaf, first_leaf_[node + child.extent]};
      if (child.kind == Kind::kDynamicRun) there = {node, node, leaf, leaf + 1};
      if (child.kind != Kind::kDynamicRun || ++in_run == child.arity) {
        node += child.extent;
        in_run = 0;
      }
      below([&] { return child_segment(object, i); }, [&] { label(read_filter(prefixes.leaves[i]), there, labels); });
    }
  }

  const Ref& names() {
    if (!names_) names_ = names_of(tree_.spec, nodes_);
    return names_;
  }

  std::string key_of(std::size_t leaf) {
    return exact_text(PyTuple_GET_ITEM(python::flat_keys(names(), Py_None).get(), static_cast<Py_ssize_t>(leaf)));
  }

  const SplitTree& tree_;
  const StackReserve stack_ = stack_reserve();
  std::vector<PyObject*> nodes_;         // by index in the spec; null for leaves
  std::vector<std::size_t> first_leaf_;  // in or after each node of the spec, and at its end
  Ref names_;                            // its names_of, once needed
};

}  // namespace

std::unique_ptr<SplitTree> split(PyObject* tree, PyObject* filters, PyObject* is_leaf, PyObject* separator,
                                 bool rest_is_static) {
  std::vector<Filter> compiled;
  for (PyObject* filter : Items(filters)) compiled.push_back(read_filter(filter));
  auto result = std::make_unique<SplitTree>();
  std::vector<Ref> nodes;
  NodeRecorder recorder(nodes);
  walk(*result, tree, is_leaf, recorder);
  Labeler labeler(*result, nodes);
  const auto rest = static_cast<std::uint32_t>(compiled.size());
  const Subtree root = labeler.root();
  Labels nearest(root, kNever);
  result->part.assign(result->leaves.size(), rest);
  for (std::uint32_t i = 0; i < rest; ++i) {
    Labels before = nearest;
    labeler.label(compiled[i], root, nearest);
    for (std::size_t leaf = 0; leaf < root.end_leaf; ++leaf) {
      if (nearest[leaf] != before[leaf]) result->part[leaf] = i;
    }
  }
  if (separator == nullptr) return result;
  if (rest_is_static) {
    const auto whole = std::exchange(result, std::make_unique<SplitTree>());
    nodes.clear();
    RestSeparator rest_separator(*whole, rest, *result, nodes);
    walk(*result, tree, Py_None, rest_separator);
  }
  const Ref names = names_of(result->spec, nodes_by_index(result->spec, nodes));
  result->keys = python::flat_keys(names, separator);
  return result;
}

}  // namespace partax
