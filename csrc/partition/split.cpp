#include "partition/split.h"

#include <algorithm>
#include <limits>

#include "base/error_path.h"
#include "base/python_hooks.h"
#include "base/stack_room.h"
#include "partition/filters.h"

namespace partax {
namespace {

// Where a filter matches a leaf: the index in the spec of the node that it matches, the leaf's own included, so that
// what is nearer to the root is less.
using Label = std::uint32_t;
constexpr Label kNever = std::numeric_limits<Label>::max();

using Labels = std::vector<Label>;  // of each leaf of the tree, by a filter or by the nearest of several

void lower(Label& label, Label other) noexcept { label = std::min(label, other); }

class Labeler {
 public:
  explicit Labeler(const Flat& tree) : tree_(tree) {
    for (std::size_t i = 0; i < tree.spec.nodes.size(); ++i) {
      first_leaf_.push_back(nodes_.size());
      if (is_leaf(i)) nodes_.push_back(static_cast<Label>(i));
    }
    first_leaf_.push_back(nodes_.size());
  }

  // Lowers the label of each leaf below `node` that the filter takes nearer to the root than its label says. What is
  // said of leaves alone is asked only of those that have none.
  void label(const Filter& filter, std::size_t node, Labels& labels) {
    const auto ask = [&](auto&& matches) {
      for (std::size_t leaf = first_leaf_[node]; leaf < end_leaf(node); ++leaf) {
        if (labels[leaf] != kNever) continue;
        if (below([&] { return key_of(leaf); }, [&] { return matches(leaf); })) labels[leaf] = nodes_[leaf];
      }
    };
    if (!stack_.is_free()) refuse_nested_filter();
    switch (filter.op) {
      case Filter::Op::kBool:
        return ask([&](std::size_t) { return filter.value; });
      case Filter::Op::kType:
        label_nodes(filter, node, labels);
        [[fallthrough]];
      case Filter::Op::kBuiltin:
      case Filter::Op::kCallable:
        return ask([&](std::size_t leaf) { return matches(filter, tree_.leaves[leaf]); });
      case Filter::Op::kPath: {
        const Ref mask = python::match_paths(filter.object, names());
        const char* const is_match = PyBytes_AS_STRING(mask.get());
        return ask([&](std::size_t leaf) { return is_match[leaf] != 0; });
      }
      case Filter::Op::kAny:
        for (const Filter& member : filter.members) label(member, node, labels);
        return;
      case Filter::Op::kAll:
        return label_all(filter, node, labels);
      case Filter::Op::kNot: {
        Labels member = labels;
        label(filter.members[0], node, member);
        for (std::size_t leaf = first_leaf_[node]; leaf < end_leaf(node); ++leaf) {
          if (member[leaf] == kNever) labels[leaf] = nodes_[leaf];
        }
        return;
      }
      case Filter::Op::kPrefix:
        return label_below(filter, node, labels);
    }
  }

 private:
  bool is_leaf(std::size_t node) const noexcept { return tree_.spec.nodes[node].kind == Kind::kDynamicLeaf; }
  std::size_t end_of(std::size_t node) const noexcept { return node + tree_.spec.nodes[node].extent; }
  std::size_t end_leaf(std::size_t node) const noexcept { return first_leaf_[end_of(node)]; }

  // Where the first of the members matches that all take the leaf.
  void label_all(const Filter& filter, std::size_t node, Labels& labels) {
    // A type may take a leaf nearer to the root than its label says.
    Labels nearest(nodes_.size(), kNever - 1);
    Labels next = filter.has_types ? Labels(nodes_.size(), kNever) : labels;
    for (const Filter& member : filter.members) {
      Labels of_member = next;
      label(member, node, of_member);
      for (std::size_t leaf = first_leaf_[node]; leaf < end_leaf(node); ++leaf) {
        if (of_member[leaf] == kNever) {
          nearest[leaf] = kNever;
          next[leaf] = nodes_[leaf];
        } else if (nearest[leaf] != kNever) {
          lower(nearest[leaf], of_member[leaf]);
        }
      }
    }
    for (std::size_t leaf = first_leaf_[node]; leaf < end_leaf(node); ++leaf) lower(labels[leaf], nearest[leaf]);
  }

  void label_nodes(const Filter& filter, std::size_t node, Labels& labels) {
    for (const std::size_t end = end_of(node); node < end;) {
      if (is_leaf(node) || !matches(filter, tree_.objects[node].get())) {
        ++node;
        continue;
      }
      for (std::size_t leaf = first_leaf_[node]; leaf < end_leaf(node); ++leaf) {
        lower(labels[leaf], static_cast<Label>(node));
      }
      node = end_of(node);
    }
  }

  // Labels what is below a node by the leaves of a prefix tree.
  void label_below(const Filter& filter, std::size_t node, Labels& labels) {
    const Flat prefix(filter.object.get(), is_filter_leaf);
    std::size_t leaf = 0;
    for (std::size_t i = 0; i < prefix.spec.nodes.size(); ++i) {
      if (prefix.spec.nodes[i].kind != Kind::kDynamicLeaf) {
        check_alike(prefix, i, tree_, node++, "the filter");
        continue;
      }
      const Filter member = below([&] { return prefix.path(i); }, [&] { return read_filter(prefix.leaves[leaf++]); });
      label(member, node, labels);
      node = end_of(node);
    }
  }

  const Ref& names() {
    if (!names_) names_ = tree_.names();
    return names_;
  }

  std::string key_of(std::size_t leaf) {
    return exact_text(PyTuple_GET_ITEM(python::flat_keys(names(), Py_None).get(), static_cast<Py_ssize_t>(leaf)));
  }

  const Flat& tree_;
  const StackReserve stack_ = stack_reserve();
  std::vector<Label> nodes_;             // of each leaf
  std::vector<std::size_t> first_leaf_;  // in or after each node, and at the end
  Ref names_;                            // of the tree, once needed
};

}  // namespace

SplitTree::SplitTree(PyObject* tree, PyObject* filters, IsLeaf is_leaf)
    : Flat(tree, std::move(is_leaf)), rest(static_cast<std::uint32_t>(PyTuple_GET_SIZE(filters))) {
  std::vector<Filter> compiled;
  for (PyObject* filter : Items(filters)) compiled.push_back(read_filter(filter));
  Labeler labeler(*this);
  Labels nearest(leaves.size(), kNever);
  part.assign(leaves.size(), rest);
  for (std::uint32_t i = 0; i < rest; ++i) {
    Labels before = nearest;
    labeler.label(compiled[i], 0, nearest);
    for (std::size_t leaf = 0; leaf < leaves.size(); ++leaf) {
      if (nearest[leaf] != before[leaf]) part[leaf] = i;
    }
  }
}

void SplitTree::make_rest_static() {
  const std::vector<StaticValue> old = std::exchange(spec.statics, {});
  const std::vector<std::uint32_t> parts = std::exchange(part, {});
  const Ref all = leaves.tuple();
  leaves.clear();
  std::size_t leaf = 0, next_static = 0;
  for (std::size_t i = 0; i < spec.nodes.size(); ++i) {
    Node& node = spec.nodes[i];
    const std::size_t end = i + 1 < spec.nodes.size() ? spec.nodes[i + 1].first_static : old.size();
    node.first_static = static_cast<std::uint32_t>(spec.statics.size());
    for (; next_static < end; ++next_static) spec.statics.push_back(old[next_static]);
    if (node.kind != Kind::kDynamicLeaf) continue;
    Ref object = Ref::borrow(PyTuple_GET_ITEM(all.get(), static_cast<Py_ssize_t>(leaf)));
    if (parts[leaf] == rest) {
      node.kind = Kind::kStaticLeaf;
      spec.statics.push_back(StaticValue::loose(std::move(object)));
    } else {
      part.push_back(parts[leaf]);
      leaves.push(std::move(object));
    }
    ++leaf;
  }
  spec.num_dynamic = leaves.size();
}

}  // namespace partax
