#include "partition/partition.h"

#include <algorithm>
#include <deque>
#include <numeric>

#include "base/error_path.h"
#include "base/python_hooks.h"
#include "partition/split.h"
#include "pytree/rebuild.h"
#include "pytree/static_node.h"

namespace partax {
namespace {

std::string argument_name(std::size_t argument) { return "pytrees[" + std::to_string(argument) + "]"; }

// Joins trees: at each place the first that is not None decides what is there.
class Combiner {
 public:
  Combiner(PyObject* trees, const IsLeaf& is_leaf) {
    const auto is_leaf_or_none = [&](PyObject* object) { return object == Py_None || (is_leaf && is_leaf(object)); };
    for (PyObject* tree : Items(trees)) {
      of_value(flats_.size(), [&] { flats_.emplace_back(tree, is_leaf_or_none); });
    }
    at_.resize(flats_.size());
    spec_.nodes.reserve(flats_[0].spec.nodes.size());
    leaves_.reserve(flats_[0].leaves.size());
  }

  Ref combine() {
    std::vector<std::size_t> all(flats_.size());
    std::iota(all.begin(), all.end(), 0);
    merge(all);
    return rebuild(spec_, leaves_.data(), leaves_.size());
  }

 private:
  struct Place {
    std::size_t node = 0, leaf = 0;
  };

  const Node& node(std::size_t tree) const { return flats_[tree].spec.nodes[at_[tree].node]; }
  bool is_leaf(std::size_t tree) const { return node(tree).kind == Kind::kDynamicLeaf; }
  PyObject* leaf(std::size_t tree) const { return flats_[tree].leaves[at_[tree].leaf]; }
  bool is_none(std::size_t tree) const { return is_leaf(tree) && leaf(tree) == Py_None; }
  void skip_node(std::size_t tree) {
    at_[tree].leaf += is_leaf(tree) ? 1 : 0;
    ++at_[tree].node;
  }
  void skip(std::size_t tree) {
    for (const std::size_t end = at_[tree].node + node(tree).extent; at_[tree].node < end;) skip_node(tree);
  }

  // Merges what these trees have at their places.
  void merge(const std::vector<std::size_t>& trees) {
    const auto first = std::find_if(trees.begin(), trees.end() - 1, [&](std::size_t tree) { return !is_none(tree); });
    if (!is_leaf(*first)) return merge_nodes(*first, trees);
    leaves_.push_back(leaf(*first));
    ++spec_.num_dynamic;
    spec_.nodes.push_back(node(*first));
    for (const std::size_t tree : trees) skip(tree);
  }

  void merge_nodes(std::size_t first, const std::vector<std::size_t>& trees) {
    const Node& model = node(first);
    std::vector<std::size_t> present;
    for (const std::size_t tree : trees) {
      if (is_none(tree)) {
        skip_node(tree);
        continue;
      }
      present.push_back(tree);
      if (tree == first) continue;
      of_value(tree, [&] {
        check_alike(flats_[first], at_[first].node, flats_[tree], at_[tree].node, argument_name(first));
      });
    }
    spec_.nodes.push_back(model);
    spec_.nodes.back().first_static = static_cast<std::uint32_t>(spec_.statics.size());
    const std::vector<StaticValue>& statics = flats_[first].spec.statics;
    const auto end = static_cast<std::ptrdiff_t>(flats_[first].spec.end_statics(at_[first].node));
    spec_.statics.insert(spec_.statics.end(), statics.begin() + model.first_static, statics.begin() + end);
    for (const std::size_t tree : present) skip_node(tree);
    for (std::size_t i = 0; i < model.arity; ++i) merge(present);
  }

  std::deque<Flat> flats_;
  std::vector<Place> at_;  // of each tree
  TreeSpec spec_;          // of the result, without extents
  std::vector<PyObject*> leaves_;
};

}  // namespace

Ref partition(PyObject* tree, PyObject* filters, PyObject* replace, PyObject* is_leaf, Py_ssize_t only) {
  return with_path("pytree", [&] {
    const SplitTree split(tree, filters, is_leaf_of(is_leaf));
    std::vector<std::size_t> counts(split.rest + 1, 0);
    for (const std::uint32_t part : split.part) ++counts[part];
    std::vector<Ref> trees;
    // For all parts: of a large tree, memory that is given back between two parts would have to be cleared again.
    std::vector<PyObject*> leaves(split.leaves.size());
    for (std::size_t part = 0; part < counts.size(); ++part) {
      if (only >= 0 && part != static_cast<std::size_t>(only)) continue;
      for (std::size_t i = 0; i < leaves.size(); ++i) leaves[i] = split.part[i] == part ? split.leaves[i] : replace;
      trees.push_back(rebuild(split.spec, leaves.data(), leaves.size()));
    }
    return tuple_of({tuple_of(std::move(trees)), tuple_of_numbers(counts)});
  });
}

Ref combine(PyObject* trees, PyObject* is_leaf) {
  try {
    return Combiner(trees, is_leaf_of(is_leaf)).combine();
  } catch (const WalkError& error) {
    error.raise(argument_name(error.origin()));
    throw PythonError{};
  }
}

Ref broadcast_prefix(PyObject* prefix, PyObject* tree, PyObject* is_prefix_leaf, const char* prefix_name,
                     const char* tree_name) {
  return with_path(tree_name, [&] {
    const Flat prefixes(prefix, [&](PyObject* object) {
      return object == Py_None || is_truthy(is_prefix_leaf, object, "reading the prefix for");
    });
    const Flat flat(tree);
    std::vector<Ref> pairs;
    std::size_t node = 0, prefix_leaf = 0;
    for (std::size_t i = 0; i < prefixes.spec.nodes.size(); ++i) {
      if (prefixes.spec.nodes[i].kind != Kind::kDynamicLeaf) {
        check_alike(prefixes, i, flat, node++, prefix_name);
        continue;
      }
      PyObject* const entry = prefixes.leaves[prefix_leaf++];
      for (const std::size_t end = node + flat.spec.nodes[node].extent; node < end; ++node) {
        if (flat.spec.nodes[node].kind != Kind::kDynamicLeaf) continue;
        pairs.push_back(Ref::checked(PyTuple_Pack(2, flat.leaves[pairs.size()], entry)));
      }
    }
    return list_of(std::move(pairs));
  });
}

Ref flat_partition(PyObject* tree, PyObject* filters, PyObject* separator, bool rest_is_static, PyObject* is_leaf,
                   const std::string& name) {
  return with_path(name.c_str(), [&] {
    SplitTree parts(tree, filters, is_leaf_of(is_leaf));
    if (rest_is_static) parts.make_rest_static();
    Ref keys = python::flat_keys(parts.names(), separator);
    std::vector<Ref> result(1);  // the spec, then the dictionaries
    for (std::size_t i = 0; i < parts.rest + (rest_is_static ? 0U : 1U); ++i) {
      result.push_back(Ref::checked(PyDict_New()));
    }
    for (std::size_t i = 0; i < parts.leaves.size(); ++i) {
      PyObject* const key = PyTuple_GET_ITEM(keys.get(), static_cast<Py_ssize_t>(i));
      checked_int(PyDict_SetItem(result[parts.part[i] + 1].get(), key, parts.leaves[i]));
    }
    for (StaticValue& value : parts.spec.statics) value.own();
    result[0] = make_flat_spec(std::move(parts.spec), std::move(keys), Ref::borrow(separator));
    return tuple_of(std::move(result));
  });
}

Ref tree_flatten(PyObject* tree, PyObject* is_leaf) {
  return with_path("pytree", [&] {
    Flat flat(tree, is_leaf_of(is_leaf));
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
