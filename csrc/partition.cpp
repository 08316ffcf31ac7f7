#include "partition.h"

#include "flatten.h"
#include "predicates.h"
#include "rebuild.h"

namespace partax {
namespace {

struct Flat {
  TreeSpec spec;
  LeafBuffer leaves;
};

void flatten_into(Flat& flat, PyObject* tree, const FlattenOptions& options) {
  try {
    Flattener(flat.spec, flat.leaves, options).tree(tree);
  } catch (const PythonError&) {
    throw WalkError::from_user_code("reading");
  }
}

FlattenOptions every_leaf(PyObject* is_leaf) {
  FlattenOptions options;
  options.hashed = false;
  options.rebuildable = true;
  options.every_leaf = true;
  options.is_leaf = is_leaf;
  return options;
}

FlattenOptions children_only() {
  FlattenOptions options = every_leaf(nullptr);
  options.one_level = true;
  return options;
}

class ListedLeaves final : public LeafSource {
 public:
  explicit ListedLeaves(const std::vector<Ref>& leaves) : leaves_(leaves) {}
  Ref leaf(std::size_t index) override { return leaves_.at(index); }

 private:
  const std::vector<Ref>& leaves_;
};

// The leaves for which `taken` has `wanted`, and `replace` elsewhere.
class ChosenLeaves final : public LeafSource {
 public:
  ChosenLeaves(const LeafBuffer& leaves, const std::vector<char>& taken, bool wanted, PyObject* replace)
      : leaves_(leaves), taken_(taken), wanted_(wanted), replace_(replace) {}
  Ref leaf(std::size_t index) override {
    return Ref::borrow((taken_[index] != 0) == wanted_ ? leaves_[index] : replace_);
  }

 private:
  const LeafBuffer& leaves_;
  const std::vector<char>& taken_;
  bool wanted_;
  PyObject* replace_;
};

std::string child_segment(const Flat& level, std::size_t child) {
  struct Search {
    std::size_t left;
    std::string path;
  } search{child, "[?]"};
  each_leaf(
      level.spec, {""},
      [](void* context, const std::string& path, std::ptrdiff_t) {
        auto* wanted = static_cast<Search*>(context);
        if (wanted->left-- == 0) wanted->path = path;
      },
      &search);
  return search.path;
}

bool is_node(PyObject* object) {
  const Kind kind = TypeTable::instance().find(object).kind;
  return kind != Kind::kStaticLeaf;
}

bool is_truthy(PyObject* callable, PyObject* argument, const char* what) {
  const Ref answer = Ref::steal(PyObject_CallOneArg(callable, argument));
  const int truth = answer ? PyObject_IsTrue(answer.get()) : -1;
  if (truth < 0) throw WalkError::from_user_code(what);
  return truth == 1;
}

// The one level of `object`, which must have the structure that `prefix` has there.
void open_alike(const Flat& prefix, PyObject* object, Flat& level, const char* what) {
  bool alike = object != Py_None && is_node(object);
  if (alike) {
    flatten_into(level, object, children_only());
    const Node &a = prefix.spec.nodes[0], &b = level.spec.nodes[0];
    alike = a.kind == b.kind && a.info == b.info && a.arity == b.arity;
    for (std::size_t i = 0; alike && i < prefix.spec.statics.size(); ++i) {
      alike = prefix.spec.statics[i].equals(level.spec.statics[i]);
    }
  }
  if (alike) return;
  const Node& node = prefix.spec.nodes[0];
  const std::string expected = node.info == nullptr ? std::string("None")
                                                    : std::string("a `") + node.info->type->tp_name + "` with " +
                                                          std::to_string(node.arity) + " children";
  throw WalkError::diagnosed(PyExc_ValueError, "found a `" + type_name(object) + "`, expected the structure of " +
                                                   what + ", which has " + expected + " here; make both alike");
}

enum class Parts : std::uint8_t { kBoth, kTaken, kRest };

// Splits by one predicate or bool.
struct Splitter {
  PyObject* replace;
  PyObject* is_leaf;
  Parts parts;

  using Pair = std::pair<Ref, Ref>;

  Pair rebuild_both(const TreeSpec& spec, LeafSource* taken, LeafSource* rest) const {
    Pair result;
    if (parts != Parts::kRest) result.first = rebuild(spec, *taken);
    if (parts != Parts::kTaken) result.second = rebuild(spec, *rest);
    return result;
  }

  Pair by_leaf(PyObject* mask, PyObject* tree) const {
    Flat flat;
    flatten_into(flat, tree, every_leaf(is_leaf));
    std::vector<char> taken(flat.leaves.size(), mask == Py_True ? 1 : 0);
    if (!PyBool_Check(mask)) {
      const int builtin = predicate_of(mask);
      for (std::size_t i = 0; i < taken.size(); ++i) {
        taken[i] = builtin >= 0 ? holds(static_cast<Predicate>(builtin), flat.leaves[i])
                                : is_truthy(mask, flat.leaves[i], "asking the filter about a leaf of");
      }
    }
    ChosenLeaves first(flat.leaves, taken, true, replace), second(flat.leaves, taken, false, replace);
    return rebuild_both(flat.spec, &first, &second);
  }

  Pair by_prefix(PyObject* prefix, PyObject* tree, int depth) const {
    if (prefix == Py_None && tree == Py_None) return {Ref::borrow(Py_None), Ref::borrow(Py_None)};
    if (!is_node(prefix)) {
      if (PyBool_Check(prefix) || (PyCallable_Check(prefix) && !is_dynamic(prefix, false)))
        return by_leaf(prefix, tree);
      throw WalkError::diagnosed(PyExc_ValueError, "found a `" + type_name(prefix) +
                                                       "` in the filter, expected a bool or a function (leaf) -> "
                                                       "bool at every leaf of it");
    }
    if (depth > kMaxDepth) throw WalkError::diagnosed(PyExc_RecursionError, "the filter is nested too deeply");
    Flat filters, level;
    flatten_into(filters, prefix, children_only());
    open_alike(filters, tree, level, "the filter");
    std::vector<Ref> taken, rest;
    for (std::size_t i = 0; i < filters.leaves.size(); ++i) {
      try {
        Pair child = by_prefix(filters.leaves[i], level.leaves[i], depth + 1);
        taken.push_back(std::move(child.first));
        rest.push_back(std::move(child.second));
      } catch (WalkError& error) {
        error.prepend(child_segment(level, i));
        throw;
      }
    }
    ListedLeaves first(taken), second(rest);
    return rebuild_both(level.spec, &first, &second);
  }
};

template <typename Body>
auto raising(const char* root, Body&& body) {
  try {
    return body();
  } catch (const WalkError& error) {
    error.raise(root);
    throw PythonError{};
  }
}

bool same_structure(const TreeSpec& a, const TreeSpec& b) { return a.equals(b); }

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
    for (std::size_t i = 0; i < flat.leaves.size(); ++i) checked_int(PyList_Append(list, prefix));
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

Ref partition(PyObject* tree, PyObject* filter_spec, PyObject* replace, PyObject* is_leaf, const char* argument) {
  return raising(argument, [&] {
    const auto [taken, rest] = Splitter{replace, is_leaf, Parts::kBoth}.by_prefix(filter_spec, tree, 0);
    return Ref::checked(PyTuple_Pack(2, taken.get(), rest.get()));
  });
}

Ref filter(PyObject* tree, PyObject* filter_spec, bool inverse, PyObject* replace, PyObject* is_leaf) {
  return raising("pytree", [&] {
    const Splitter splitter{replace, is_leaf, inverse ? Parts::kRest : Parts::kTaken};
    auto [taken, rest] = splitter.by_prefix(filter_spec, tree, 0);
    return inverse ? rest : taken;
  });
}

Ref combine(PyObject* trees, PyObject* is_leaf) {
  return raising("pytrees[0]", [&]() -> Ref {
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
      if (!same_structure(first.spec, other.spec)) return combine_nodes(present, is_leaf, 0);
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
  return raising(tree_name, [&] {
    Ref list = Ref::checked(PyList_New(0));
    broadcast(prefix, tree, is_prefix_leaf, prefix_name, list.get(), 0);
    return list;
  });
}

}  // namespace partax
