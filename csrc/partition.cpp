#include "partition.h"

#include <memory>

#include "one_level.h"
#include "rebuild.h"
#include "split.h"
#include "tree_path.h"

namespace partax {
namespace {

// The leaves of one part, and `replace` elsewhere.
class PartLeaves final : public LeafSource {
 public:
  PartLeaves(const SplitTree& split, std::uint32_t part, bool wanted, PyObject* replace)
      : leaves_(split.leaves), part_of_(split.part.data()), part_(part), wanted_(wanted), replace_(replace) {}
  Ref leaf(std::size_t index) override { return Ref::borrow(choice(index)); }
  void fill(PyObject** items, std::size_t index, std::size_t count) override {
    for (std::size_t i = 0; i < count; ++i) items[i] = Py_NewRef(choice(index + i));
  }

 private:
  PyObject* choice(std::size_t index) const {
    return (part_of_[index] == part_) == wanted_ ? leaves_[index] : replace_;
  }

  const LeafBuffer& leaves_;
  const std::uint32_t* part_of_;
  std::uint32_t part_;
  bool wanted_;
  PyObject* replace_;
};

// `trees` holds no None; the first decides the kind.
Ref combine_nodes(const std::vector<PyObject*>& trees, PyObject* is_leaf, int depth) {
  PyObject* first = trees[0];
  const bool leaf = !is_node(first) || (is_leaf != nullptr && is_truthy(is_leaf, first, "asking `is_leaf` about"));
  if (leaf) return Ref::borrow(first);
  if (depth > kMaxDepth) throw WalkError::diagnosed(PyExc_RecursionError, "the tree is nested too deeply");
  Flat level;
  flatten_into(level, first, children_only());
  std::vector<std::unique_ptr<Flat>> others;
  for (std::size_t i = 1; i < trees.size(); ++i) {
    others.push_back(std::make_unique<Flat>());
    open_alike(level, trees[i], *others.back(), "the first tree");
  }
  std::vector<Ref> children;
  for (std::size_t i = 0; i < level.leaves.size(); ++i) {
    std::vector<PyObject*> present;
    if (level.leaves[i] != Py_None) present.push_back(level.leaves[i]);
    for (const auto& other : others) {
      if (other->leaves[i] != Py_None) present.push_back(other->leaves[i]);
    }
    try {
      children.push_back(present.empty() ? Ref::borrow(Py_None) : combine_nodes(present, is_leaf, depth + 1));
    } catch (WalkError& error) {
      error.prepend(child_segment(level, i));
      throw;
    }
  }
  ListedLeaves leaves(children);
  return rebuild(level.spec, leaves);
}

void broadcast(PyObject* prefix, PyObject* tree, PyObject* is_prefix_leaf, const char* prefix_name, PyObject* list,
               int depth) {
  const bool leaf =
      prefix == Py_None || !is_node(prefix) || is_truthy(is_prefix_leaf, prefix, "reading the prefix for");
  if (leaf) {
    Flat flat;
    flatten_into(flat, tree, every_leaf(nullptr));
    for (std::size_t i = 0; i < flat.leaves.size(); ++i) {
      checked_int(PyList_Append(list, Ref::checked(PyTuple_Pack(2, flat.leaves[i], prefix)).get()));
    }
    return;
  }
  if (depth > kMaxDepth) throw WalkError::diagnosed(PyExc_RecursionError, "the prefix is nested too deeply");
  Flat prefixes, level;
  flatten_into(prefixes, prefix, children_only());
  open_alike(prefixes, tree, level, prefix_name);
  for (std::size_t i = 0; i < prefixes.leaves.size(); ++i) {
    try {
      broadcast(prefixes.leaves[i], level.leaves[i], is_prefix_leaf, prefix_name, list, depth + 1);
    } catch (WalkError& error) {
      error.prepend(child_segment(level, i));
      throw;
    }
  }
}

}  // namespace

Partition partition(PyObject* tree, PyObject* filters, PyObject* replace, PyObject* is_leaf) {
  return with_path("pytree", [&] {
    SplitTree parts;
    SplitOptions options;
    options.is_leaf = is_leaf;
    split(parts, tree, filters, options);
    const Py_ssize_t count = PyTuple_GET_SIZE(filters) + 1;
    Partition result;
    std::vector<Ref> trees;
    for (Py_ssize_t i = 0; i < count; ++i) {
      PartLeaves leaves(parts, static_cast<std::uint32_t>(i), true, replace);
      trees.push_back(rebuild(parts.spec, leaves));
    }
    result.trees = tuple_of(std::move(trees));
    result.counts.resize(static_cast<std::size_t>(count), 0);
    for (const std::uint32_t part : parts.part) ++result.counts[part];
    return result;
  });
}

Ref filter(PyObject* tree, PyObject* filter_spec, bool inverse, PyObject* replace, PyObject* is_leaf) {
  return with_path("pytree", [&] {
    const Ref filters = Ref::checked(PyTuple_Pack(1, filter_spec));
    SplitTree parts;
    SplitOptions options;
    options.is_leaf = is_leaf;
    split(parts, tree, filters.get(), options);
    PartLeaves leaves(parts, 0, !inverse, replace);
    return rebuild(parts.spec, leaves);
  });
}

Ref combine(PyObject* trees, PyObject* is_leaf) {
  return with_path("pytrees[0]", [&]() -> Ref {
    std::vector<PyObject*> present;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(trees); ++i) {
      if (PyTuple_GET_ITEM(trees, i) != Py_None) present.push_back(PyTuple_GET_ITEM(trees, i));
    }
    if (present.empty()) return Ref::borrow(Py_None);
    // Parts of one tree are alike but for their Nones: then leaf by leaf.
    FlattenOptions options = every_leaf(is_leaf);
    options.none_is_leaf = true;
    Flat first;
    flatten_into(first, present[0], options);
    std::vector<Ref> leaves;
    leaves.reserve(first.leaves.size());
    for (std::size_t i = 0; i < first.leaves.size(); ++i) leaves.push_back(Ref::borrow(first.leaves[i]));
    for (std::size_t t = 1; t < present.size(); ++t) {
      Flat other;
      flatten_into(other, present[t], options);
      if (!first.spec.equals(other.spec)) return combine_nodes(present, is_leaf, 0);
      for (std::size_t i = 0; i < leaves.size(); ++i) {
        if (leaves[i].get() == Py_None) leaves[i] = Ref::borrow(other.leaves[i]);
      }
    }
    ListedLeaves source(leaves);
    return rebuild(first.spec, source);
  });
}

Ref broadcast_prefix(PyObject* prefix, PyObject* tree, PyObject* is_prefix_leaf, const char* prefix_name,
                     const char* tree_name) {
  return with_path(tree_name, [&] {
    Ref list = Ref::checked(PyList_New(0));
    broadcast(prefix, tree, is_prefix_leaf, prefix_name, list.get(), 0);
    return list;
  });
}

}  // namespace partax
