#include "partition/partition.h"

#include <algorithm>

#include "base/error_path.h"
#include "partition/one_level.h"
#include "partition/split.h"
#include "tree/rebuild.h"
#include "tree/static_node.h"

namespace partax {
namespace {

// The tree with the leaves of one part, or (not `wanted`) with all others, and `replace` elsewhere. `leaves` is room
// for them: of a large tree, memory that is given back between two parts would have to be cleared again.
Ref tree_of_part(const SplitTree& split, std::size_t part, bool wanted, PyObject* replace,
                 std::vector<PyObject*>& leaves) {
  leaves.resize(split.leaves.size());
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    leaves[i] = (split.part[i] == part) == wanted ? split.leaves[i] : replace;
  }
  return rebuild(split.spec, leaves.data(), leaves.size());
}

// One of the trees that are combined, or what it has somewhere.
struct Part {
  PyObject* tree;
  std::size_t argument;  // which of the trees
};

std::string argument_name(std::size_t argument) { return "pytrees[" + std::to_string(argument) + "]"; }

// `parts` holds no None; the first decides the kind, and what is static.
Ref combine_nodes(const std::vector<Part>& parts, PyObject* is_leaf, int depth) {
  const Part& first = parts[0];
  const bool leaf = of_value(first.argument, [&] {
    if (!is_node(first.tree)) return true;
    if (is_leaf != nullptr && is_truthy(is_leaf, first.tree, "asking `is_leaf` about")) return true;
    if (depth > kMaxDepth) throw WalkError::diagnosed(PyExc_RecursionError, "the tree is nested too deeply");
    return false;
  });
  if (leaf) return Ref::borrow(first.tree);
  std::vector<Flat> levels(parts.size());
  of_value(first.argument, [&] { flatten_into(levels[0], first.tree, children_only()); });
  for (std::size_t i = 1; i < parts.size(); ++i) {
    of_value(parts[i].argument,
             [&] { open_alike(levels[0], parts[i].tree, levels[i], argument_name(first.argument)); });
  }
  std::vector<Ref> children;
  for (std::size_t i = 0; i < levels[0].leaves.size(); ++i) {
    std::vector<Part> present;
    for (std::size_t j = 0; j < parts.size(); ++j) {
      if (levels[j].leaves[i] != Py_None) present.push_back(Part{levels[j].leaves[i], parts[j].argument});
    }
    const auto combined_child = [&] {
      return present.empty() ? Ref::borrow(Py_None) : combine_nodes(present, is_leaf, depth + 1);
    };
    children.push_back(below([&] { return child_segment(first.tree, i); }, combined_child));
  }
  const Ref row = tuple_of(std::move(children));
  return rebuild(levels[0].spec, Items(row.get()).begin(), levels[0].leaves.size());
}

// Parts of one tree are alike except for their Nones: then leaf by leaf. Empty where they are not.
Ref combine_leaves(const std::vector<Part>& parts, PyObject* is_leaf) {
  FlattenOptions options = every_leaf(is_leaf);
  options.none_is_leaf = true;
  std::vector<Flat> flats(parts.size());
  const Flat& first = flats[0];
  for (std::size_t i = 0; i < parts.size(); ++i) {
    of_value(parts[i].argument, [&] { flatten_into(flats[i], parts[i].tree, options); });
    if (!have_same_nodes(first.spec, flats[i].spec)) return {};
  }
  for (std::size_t i = 1; i < parts.size(); ++i) {
    of_value(parts[i].argument, [&] {
      check_equal_statics(first.spec, flats[i].spec, parts[i].tree, options, argument_name(parts[0].argument));
    });
  }
  std::vector<PyObject*> leaves;
  leaves.reserve(first.leaves.size());
  for (std::size_t i = 0; i < first.leaves.size(); ++i) {
    std::size_t chosen = 0;
    while (chosen + 1 < flats.size() && flats[chosen].leaves[i] == Py_None) ++chosen;
    leaves.push_back(flats[chosen].leaves[i]);
  }
  return rebuild(first.spec, leaves.data(), leaves.size());
}

Ref combined(const std::vector<Part>& parts, PyObject* is_leaf) {
  Ref by_leaves = combine_leaves(parts, is_leaf);
  return by_leaves ? std::move(by_leaves) : combine_nodes(parts, is_leaf, 0);
}

void broadcast(PyObject* prefix, PyObject* tree, PyObject* is_prefix_leaf, const char* prefix_name, PyObject* list,
               int depth) {
  const bool leaf =
      prefix == Py_None || !is_node(prefix) || is_truthy(is_prefix_leaf, prefix, "reading the prefix for");
  if (leaf) {
    Flat flat;
    flatten_into(flat, tree, every_leaf(Py_None));
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
    below([&] { return child_segment(tree, i); },
          [&] { broadcast(prefixes.leaves[i], level.leaves[i], is_prefix_leaf, prefix_name, list, depth + 1); });
  }
}

}  // namespace

Ref partition(PyObject* tree, PyObject* filters, PyObject* replace, PyObject* is_leaf) {
  return with_path("pytree", [&] {
    const auto parts = split(tree, filters, is_leaf);
    std::vector<Py_ssize_t> counts(static_cast<std::size_t>(PyTuple_GET_SIZE(filters)) + 1, 0);
    for (const std::uint32_t part : parts->part) ++counts[part];
    std::vector<Ref> trees, numbers;
    std::vector<PyObject*> leaves;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      trees.push_back(tree_of_part(*parts, i, true, replace, leaves));
      numbers.push_back(Ref::checked(PyLong_FromSsize_t(counts[i])));
    }
    return Ref::checked(PyTuple_Pack(2, tuple_of(std::move(trees)).get(), tuple_of(std::move(numbers)).get()));
  });
}

Ref filter(PyObject* tree, PyObject* filter_spec, bool inverse, PyObject* replace, PyObject* is_leaf) {
  return with_path("pytree", [&] {
    const Ref filters = Ref::checked(PyTuple_Pack(1, filter_spec));
    const auto parts = split(tree, filters.get(), is_leaf);
    const auto num_matches = static_cast<Py_ssize_t>(std::count(parts->part.begin(), parts->part.end(), 0U));
    std::vector<PyObject*> leaves;
    return Ref::checked(Py_BuildValue("(On)", tree_of_part(*parts, 0, !inverse, replace, leaves).get(), num_matches));
  });
}

Ref combine(PyObject* trees, PyObject* is_leaf) {
  is_leaf = null_if_none(is_leaf);
  std::vector<Part> present;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(trees); ++i) {
    if (PyTuple_GET_ITEM(trees, i) == Py_None) continue;
    present.push_back(Part{PyTuple_GET_ITEM(trees, i), static_cast<std::size_t>(i)});
  }
  if (present.empty()) return Ref::borrow(Py_None);
  try {
    return combined(present, is_leaf);
  } catch (const WalkError& error) {
    error.raise(argument_name(error.origin()));
    throw PythonError{};
  }
}

Ref broadcast_prefix(PyObject* prefix, PyObject* tree, PyObject* is_prefix_leaf, const char* prefix_name,
                     const char* tree_name) {
  return with_path(tree_name, [&] {
    Ref list = Ref::checked(PyList_New(0));
    broadcast(prefix, tree, is_prefix_leaf, prefix_name, list.get(), 0);
    return list;
  });
}

Ref flat_partition(PyObject* tree, PyObject* filters, PyObject* separator, bool rest_is_static, PyObject* is_leaf,
                   const std::string& name) {
  return with_path(name.c_str(), [&] {
    const auto parts = split(tree, filters, is_leaf, separator, rest_is_static);
    const Py_ssize_t count = PyTuple_GET_SIZE(filters) + (rest_is_static ? 0 : 1);
    std::vector<Ref> result(1);  // the spec, then the dictionaries
    for (Py_ssize_t i = 0; i < count; ++i) result.push_back(Ref::checked(PyDict_New()));
    for (std::size_t i = 0; i < parts->leaves.size(); ++i) {
      PyObject* const key = PyTuple_GET_ITEM(parts->keys.get(), static_cast<Py_ssize_t>(i));
      checked_int(PyDict_SetItem(result[parts->part[i] + 1].get(), key, parts->leaves[i]));
    }
    for (StaticValue& value : parts->spec.statics) value.own();
    result[0] = make_flat_spec(std::move(parts->spec), std::move(parts->keys), Ref::borrow(separator));
    return tuple_of(std::move(result));
  });
}

Ref tree_flatten(PyObject* tree, PyObject* is_leaf) {
  FlattenOptions options = every_leaf(is_leaf);
  options.dynamic_runs = true;
  return with_path("pytree", [&] {
    Flat flat;
    flatten_into(flat, tree, options);
    const Ref none = Ref::borrow(Py_None);
    return tuple_of({flat.leaves.list(), make_flat_spec(std::move(flat.spec), none, none)});
  });
}

Ref tree_unflatten(PyObject* spec, PyObject* leaves) {
  const TreeSpec& tree = loose_tree(spec);
  const Ref values = Ref::checked(PyList_AsTuple(leaves));  // which user code cannot change
  if (static_cast<std::size_t>(PyTuple_GET_SIZE(values.get())) != tree.num_dynamic) {
    raise_error(PyExc_ValueError, "expected as many leaves as the structure has");
  }
  return rebuild(tree, Items(values.get()).begin(), tree.num_dynamic);
}

bool have_equal_structures(PyObject* spec, PyObject* other) {
  return with_path("pytree", [&] { return are_alike(loose_tree(spec), loose_tree(other)); });
}

}  // namespace partax
