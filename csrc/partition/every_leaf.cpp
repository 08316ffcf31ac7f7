#include "partition/every_leaf.h"

#include <unordered_map>

#include "base/error_path.h"
#include "base/held_values.h"
#include "base/python_hooks.h"
#include "partition/path_text.h"
#include "partition/structure.h"
#include "tree/rebuild.h"
#include "tree/spec_data.h"

namespace partax {
namespace {

// A tree turns out not to have the structure of the one beside it.
struct Unlike {};

// Makes leaves of a tree where the tree beside it has them.
class UpTo final : public WalkObserver {
 public:
  explicit UpTo(const TreeSpec& prefix) : nodes_(prefix.nodes) {}

  bool enter(const Step*, PyObject*) override { return at_leaf_ = takes_leaf(); }
  bool leaf(PyObject*) override {
    if (!at_leaf_) throw Unlike{};
    return true;
  }
  std::optional<bool> known_leaf(PyObject*) override {
    if (!takes_leaf()) throw Unlike{};
    return true;
  }
  void leave() override {}

 private:
  // Passes the node that is next there, or one leaf of a run; whether it is a leaf.
  bool takes_leaf() {
    if (at_ == nodes_.size()) throw Unlike{};
    const Node& node = nodes_[at_];
    if (node.kind == Kind::kDynamicRun) {
      if (++of_run_ == node.arity) {
        ++at_;
        of_run_ = 0;
      }
      return true;
    }
    ++at_;
    return node.kind == Kind::kDynamicLeaf;
  }

  const std::vector<Node>& nodes_;
  std::size_t at_ = 0;
  std::size_t of_run_ = 0;  // how many leaves of the run at `at_` have been passed
  bool at_leaf_ = false;
};

// The paths of leaves as jax writes them: tuples of its keys.
class KeyPaths final : public WalkObserver {
 public:
  bool enter(const Step* step, PyObject*) override {
    if (step == nullptr) return false;
    path_.push(*step);
    keys_.push_back(key(*step));
    return false;
  }
  bool leaf(PyObject*) override {
    paths_.push_back(tuple_of(keys_));
    leave();
    return true;
  }
  std::optional<bool> known_leaf(PyObject*) override { return std::nullopt; }
  void leave() override {
    if (keys_.empty()) return;  // the root
    keys_.pop_back();
    path_.pop();
  }

  // Of the leaf at `index`; borrowed.
  PyObject* path(std::size_t index) const { return paths_[index].get(); }

 private:
  Ref key(const Step& step) {
    const auto made = [](const char* cls, PyObject* part) {
      const Ref jax = Ref::checked(PyImport_ImportModule("jax.tree_util"));
      return Ref::checked(PyObject_CallOneArg(attribute(jax.get(), cls).get(), part));
    };
    const Step::By by = step.by();
    if (by == Step::By::kKey) return made("DictKey", step.key);
    if (by == Step::By::kName) return made("GetAttrKey", step.name());
    PyObject* const entry = by == Step::By::kFunctions ? path_.key_entry() : nullptr;
    if (entry != nullptr) return Ref::borrow(entry);
    const Ref index = Ref::checked(PyLong_FromSize_t(step.index));
    return made(by == Step::By::kIndex ? "SequenceKey" : "FlattenedIndexKey", index.get());
  }

  PathText path_;
  std::vector<Ref> keys_;  // of the object met last and those above it, but for the root
  std::vector<Ref> paths_;
};

// What another tree has where the first one has leaves.
void flatten_up_to(PyObject* tree, PyObject* is_leaf, const TreeSpec& first, PyObject* other, const std::string& name,
                   LeafBuffer& leaves) {
  const bool alike = with_path(name.c_str(), [&] {
    UpTo observer(first);
    TreeSpec spec;
    FlattenOptions options = in_runs(Py_None);
    options.observer = &observer;
    try {
      Flattener(spec, leaves, options).tree(other);
    } catch (const Unlike&) {
      return false;
    }
    return reading([&] { return are_alike(first, spec); }, "comparing");
  });
  if (alike) return;
  // jax, which is right, says what it gets there, or why it gets nothing.
  leaves.clear();
  const Ref root = exact_unicode(name);
  const Ref found = python::leaves_up_to_prefix(tree, other, is_leaf, root);
  if (PyUnicode_Check(found.get())) {
    PyErr_SetObject(PyExc_ValueError, found.get());
    throw PythonError{};
  }
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(found.get()); ++i) leaves.push(PyList_GET_ITEM(found.get(), i));
  if (leaves.size() == first.num_dynamic) return;
  PyErr_Format(PyExc_ValueError, "`%U`: found another structure than when it was read first", root.get());
  throw PythonError{};
}

// Raises the exception that is set, of a function of the leaf at `index`, with the leaf's path.
[[noreturn]] void raise_at_leaf(PyObject* tree, PyObject* is_leaf, std::size_t index) {
  WalkError error = WalkError::from_user_code("mapping over");
  if (!error.must_pass()) {
    const auto find_path = [&] {
      Flat named;
      FlattenOptions options = every_leaf(is_leaf);
      options.keyed = true;
      flatten_into(named, tree, options);
      const Ref paths = python::leaf_paths(spec_data(named.spec, root_of("")));
      const auto at = static_cast<Py_ssize_t>(index);
      if (at < PyList_GET_SIZE(paths.get())) error.prepend(exact_text(PyList_GET_ITEM(paths.get(), at)));
    };
    attempt(find_path, [] {});
  }
  error.raise("tree");
  throw PythonError{};
}

// Finds objects by identity; of one that is there twice, the last.
class Finder final : public WalkObserver {
 public:
  Finder(PyObject* targets, bool empty_tuples) : empty_tuples_(empty_tuples) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(targets); ++i) {
      targets_.insert_or_assign(PyTuple_GET_ITEM(targets, i), static_cast<std::size_t>(i));
    }
  }

  bool enter(const Step*, PyObject* object) override {
    return finds(object) || (empty_tuples_ && PyTuple_CheckExact(object) && PyTuple_GET_SIZE(object) == 0);
  }
  bool leaf(PyObject*) override {
    ++leaves_;
    return true;
  }
  std::optional<bool> known_leaf(PyObject* object) override {
    finds(object);
    ++leaves_;
    return true;
  }
  void leave() override {}

  Ref found() const {
    Ref list = Ref::checked(PyList_New(0));
    for (const auto& [leaf, target] : found_) {
      const Ref pair =
          Ref::checked(Py_BuildValue("(nn)", static_cast<Py_ssize_t>(leaf), static_cast<Py_ssize_t>(target)));
      checked_int(PyList_Append(list.get(), pair.get()));
    }
    return list;
  }

 private:
  bool finds(PyObject* object) {
    const auto target = targets_.find(object);
    if (target == targets_.end()) return false;
    found_.emplace_back(leaves_, target->second);
    return true;
  }

  bool empty_tuples_;  // whether these are leaves
  std::unordered_map<PyObject*, std::size_t> targets_;
  std::vector<std::pair<std::size_t, std::size_t>> found_;
  std::size_t leaves_ = 0;  // so many have been passed
};

// What `give(flat)` makes of a tree that is called `root`.
template <typename Give>
Ref of_flat(const char* root, PyObject* tree, const FlattenOptions& options, Give&& give) {
  return with_path(root, [&] {
    Flat flat;
    flatten_into(flat, tree, options);
    return give(flat);
  });
}

}  // namespace

Ref tree_leaves(PyObject* tree, PyObject* is_leaf) {
  FlattenOptions options = in_runs(is_leaf);
  options.only_leaves = true;
  return of_flat("tree", tree, options, [](Flat& flat) { return flat.leaves.list(); });
}

Ref tree_flatten(PyObject* tree, PyObject* is_leaf) {
  return of_flat("tree", tree, in_runs(is_leaf), [](Flat& flat) {
    return Ref::checked(PyTuple_Pack(2, flat.leaves.list().get(), make_structure(std::move(flat.spec)).get()));
  });
}

Ref tree_structure(PyObject* tree, PyObject* is_leaf) {
  return of_flat("tree", tree, in_runs(is_leaf), [](Flat& flat) { return make_structure(std::move(flat.spec)); });
}

Ref tree_map(PyObject* function, PyObject* trees, PyObject* is_leaf, bool with_path) {
  PyObject* const tree = PyTuple_GET_ITEM(trees, 0);
  const auto count = static_cast<std::size_t>(PyTuple_GET_SIZE(trees));
  Flat first;
  KeyPaths paths;
  partax::with_path("tree", [&] {
    FlattenOptions options = in_runs(is_leaf);
    if (with_path) options.observer = &paths;
    flatten_into(first, tree, options);
  });
  std::vector<LeafBuffer> others(count - 1);
  for (std::size_t i = 1; i < count; ++i) {
    flatten_up_to(tree, is_leaf, first.spec, PyTuple_GET_ITEM(trees, static_cast<Py_ssize_t>(i)),
                  "rest[" + std::to_string(i - 1) + "]", others[i - 1]);
  }
  std::vector<PyObject*> arguments(count + 2);  // one in front that vectorcall may use
  HeldValues results(first.leaves.size());
  for (std::size_t i = 0; i < first.leaves.size(); ++i) {
    std::size_t given = 0;
    if (with_path) arguments[++given] = paths.path(i);
    arguments[++given] = first.leaves[i];
    for (const LeafBuffer& other : others) arguments[++given] = other[i];
    const std::size_t flags = given | PY_VECTORCALL_ARGUMENTS_OFFSET;
    Ref result = [&] {
      const Away away;
      return Ref::steal(PyObject_Vectorcall(function, arguments.data() + 1, flags, nullptr));
    }();
    if (!result) raise_at_leaf(tree, is_leaf, i);
    results.keep(std::move(result));
  }
  ListedLeaves row(results.to_fill(), first.leaves.size());
  return rebuild(first.spec, row);
}

Ref tree_find(PyObject* tree, PyObject* targets, PyObject* is_leaf, bool empty_tuples) {
  Finder finder(targets, empty_tuples);
  FlattenOptions options = in_runs(is_leaf);
  options.observer = &finder;
  return of_flat("pytree", tree, options, [&](Flat& flat) {
    return Ref::checked(
        PyTuple_Pack(3, flat.leaves.list().get(), make_structure(std::move(flat.spec)).get(), finder.found().get()));
  });
}

}  // namespace partax
