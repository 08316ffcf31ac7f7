#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include "base/boxed.h"
#include "base/error_path.h"
#include "base/held_values.h"
#include "base/hooks.h"
#include "base/python_hooks.h"
#include "partition/one_level.h"
#include "partition/partition.h"
#include "tree/rebuild.h"

namespace partax {
namespace {

// By a list, since CPython loses the items of a tuple that it cannot make longer.
Ref as_tuple(PyObject* items) {
  if (PyTuple_CheckExact(items)) return Ref::borrow(items);
  const Ref list = PyList_CheckExact(items) ? Ref::borrow(items) : Ref::checked(PySequence_List(items));
  return Ref::checked(PyList_AsTuple(list.get()));
}

// A Structure of a tree, which holds its static values.
Ref make_structure(TreeSpec tree) { return box(std::make_unique<TreeSpec>(std::move(tree))); }

// ---- Trees beside one another.

// As every_leaf, with long rows of leaves as one node.
FlattenOptions in_runs(PyObject* is_leaf) {
  FlattenOptions options = every_leaf(is_leaf);
  options.dynamic_runs = true;
  options.unsortable = PyExc_ValueError;  // as jax's
  return options;
}

// Where a tree has been read twice: whether it had as many leaves again.
void check_count(std::size_t found, std::size_t expected, const Ref& root) {
  if (found == expected) return;
  raise_error(PyExc_ValueError, "`%U`: found another structure than when it was read first", root.get());
}

// What another tree, called `name`, has where the first one has leaves.
void flatten_up_to(PyObject* tree, PyObject* is_leaf, const TreeSpec& first, PyObject* other, const std::string& name,
                   Flat& beside) {
  const auto is_read = [&] {
    flatten_into(beside, other, in_runs(Py_None));
    return have_like_nodes(first, beside.spec);
  };
  // What counts as a leaf of the first tree is not asked of the other.
  const bool alike = with_path(name.c_str(), [&] {
    return is_leaf == Py_None && attempt(is_read, [] { return false; }) &&
           reading([&] { return are_alike(first, beside.spec); }, "comparing");
  });
  if (alike) return;
  // jax, which is right, says what it gets there, or why it gets nothing.
  const Ref root = exact_unicode(name);
  const Ref found = python::leaves_up_to_prefix(tree, other, is_leaf, root);
  if (PyUnicode_Check(found.get())) {
    PyErr_SetObject(PyExc_ValueError, found.get());
    throw PythonError{};
  }
  beside.leaves.clear();
  for (PyObject* leaf : Items(found.get())) beside.leaves.push(Ref::borrow(leaf));
  check_count(beside.leaves.size(), first.num_dynamic, root);
}

// Raises the exception that is set, of a function of the leaf at `index`, with the leaf's path.
[[noreturn]] void raise_at_leaf(PyObject* tree, PyObject* is_leaf, std::size_t index) {
  WalkError error = WalkError::from_user_code("mapping over");
  if (!error.must_pass()) {
    const auto find_path = [&] { error.prepend(exact_text(python::leaf_path(tree, is_leaf, number(index)).get())); };
    attempt(find_path, [] {});
  }
  error.raise("tree");
  throw PythonError{};
}

// Has objects count as leaves, by identity; of one that is there twice, the last.
class Finder final : public WalkObserver {
 public:
  Finder(PyObject* targets, bool empty_tuples) : empty_tuples_(empty_tuples) {
    std::size_t next = 0;
    for (PyObject* target : Items(targets)) targets_.insert_or_assign(target, next++);
  }

  bool enter(const Step*, PyObject* object) override {
    return targets_.count(object) != 0 ||
           (empty_tuples_ && PyTuple_CheckExact(object) && PyTuple_GET_SIZE(object) == 0);
  }
  bool leaf(PyObject*) override { return true; }
  std::optional<bool> known_leaf(PyObject*, const Step&) override { return true; }
  void leave() override {}

  Ref found_in(const LeafBuffer& leaves) const {
    std::vector<Ref> pairs;
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      const auto target = targets_.find(leaves[i]);
      if (target != targets_.end()) pairs.push_back(tuple_of({number(i), number(target->second)}));
    }
    return list_of(std::move(pairs));
  }

 private:
  bool empty_tuples_;  // whether these are leaves
  std::unordered_map<PyObject*, std::size_t> targets_;
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

// ---- Arrays beside one another.

class Buffer {
 public:
  explicit Buffer(PyObject* array) : is_there_(PyObject_GetBuffer(array, &view_, PyBUF_RECORDS_RO) == 0) {
    if (!is_there_) forgive();
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (is_there_) PyBuffer_Release(&view_);
  }

  explicit operator bool() const noexcept { return is_there_; }
  const Py_buffer& operator*() const noexcept { return view_; }

 private:
  Py_buffer view_ = {};
  bool is_there_;
};

template <typename Element>
bool equal_elements(const Py_buffer& a, const Py_buffer& b) {
  const auto* first = static_cast<const Element*>(a.buf);
  return std::equal(first, first + a.len / static_cast<Py_ssize_t>(sizeof(Element)),
                    static_cast<const Element*>(b.buf));
}

bool equal_bytes(const Py_buffer& a, const Py_buffer& b) {
  return a.len == 0 || std::memcmp(a.buf, b.buf, static_cast<std::size_t>(a.len)) == 0;
}

// Whether the elements are in one order in memory, without gaps.
bool lie_alike(const Py_buffer& a, const Py_buffer& b) {
  return (PyBuffer_IsContiguous(&a, 'C') != 0 && PyBuffer_IsContiguous(&b, 'C') != 0) ||
         (PyBuffer_IsContiguous(&a, 'F') != 0 && PyBuffer_IsContiguous(&b, 'F') != 0);
}

}  // namespace

Ref tree_leaves(PyObject* tree, PyObject* is_leaf) {
  FlattenOptions options = in_runs(is_leaf);
  options.only_leaves = true;
  return of_flat("tree", tree, options, [](Flat& flat) { return flat.leaves.list(); });
}

Ref tree_flatten(PyObject* tree, PyObject* is_leaf) {
  return of_flat("tree", tree, in_runs(is_leaf),
                 [](Flat& flat) { return tuple_of({flat.leaves.list(), make_structure(std::move(flat.spec))}); });
}

Ref tree_map(PyObject* function, PyObject* trees, PyObject* is_leaf, bool gives_paths) {
  PyObject* const tree = PyTuple_GET_ITEM(trees, 0);
  const auto count = static_cast<std::size_t>(PyTuple_GET_SIZE(trees));
  Flat first;
  with_path("tree", [&] { flatten_into(first, tree, in_runs(is_leaf)); });
  const Ref paths = gives_paths ? python::key_paths(tree, is_leaf) : Ref();
  if (paths) check_count(static_cast<std::size_t>(PyList_GET_SIZE(paths.get())), first.leaves.size(), unicode("tree"));
  std::vector<Flat> others(count - 1);
  for (std::size_t i = 1; i < count; ++i) {
    flatten_up_to(tree, is_leaf, first.spec, PyTuple_GET_ITEM(trees, static_cast<Py_ssize_t>(i)),
                  "rest[" + std::to_string(i - 1) + "]", others[i - 1]);
  }
  std::vector<PyObject*> arguments(count + 2);  // one in front that vectorcall may use
  HeldValues results(first.leaves.size());
  for (std::size_t i = 0; i < first.leaves.size(); ++i) {
    std::size_t given = 0;
    if (gives_paths) arguments[++given] = PyList_GET_ITEM(paths.get(), static_cast<Py_ssize_t>(i));
    arguments[++given] = first.leaves[i];
    for (const Flat& other : others) arguments[++given] = other.leaves[i];
    const std::size_t flags = given | PY_VECTORCALL_ARGUMENTS_OFFSET;
    Ref result = [&] {
      const Away away;
      return Ref::steal(PyObject_Vectorcall(function, arguments.data() + 1, flags, nullptr));
    }();
    if (!result) raise_at_leaf(tree, is_leaf, i);
    results.keep(std::move(result));
  }
  return rebuild(first.spec, results.to_fill(), first.leaves.size());
}

Ref tree_find(PyObject* tree, PyObject* targets, PyObject* is_leaf, bool empty_tuples) {
  Finder finder(targets, empty_tuples);
  FlattenOptions options = in_runs(is_leaf);
  options.observer = &finder;
  return of_flat("pytree", tree, options, [&](Flat& flat) {
    return tuple_of({flat.leaves.list(), make_structure(std::move(flat.spec)), finder.found_in(flat.leaves)});
  });
}

Ref tree_unflatten(PyObject* structure, PyObject* leaves) {
  if (Py_TYPE(structure) != Boxed<TreeSpec>::type) raise_error(PyExc_TypeError, "expected a Structure");
  const Ref keep = Ref::borrow(structure);
  const TreeSpec& tree = Boxed<TreeSpec>::in(structure);
  const Ref given = as_tuple(leaves);  // which nobody else can change meanwhile
  const Py_ssize_t count = PyTuple_GET_SIZE(given.get());
  if (static_cast<std::size_t>(count) != tree.num_dynamic) {
    raise_error(PyExc_ValueError, "`leaves`: found %zd, expected the %zu of the structure", count, tree.num_dynamic);
  }
  return rebuild(tree, Items(given.get()).begin(), tree.num_dynamic);
}

std::optional<bool> equal_arrays(PyObject* a, PyObject* b) {
  const Kept& type = hooks().jax_array_type;
  if (!type || !type.is(Py_TYPE(a)) || !type.is(Py_TYPE(b))) return {};
  const Buffer left(a);
  if (!left) return {};
  const Buffer right(b);
  if (!right) return {};
  const Py_buffer &x = *left, &y = *right;
  if (x.format == nullptr || y.format == nullptr || std::strcmp(x.format, y.format) != 0) return {};
  if (x.ndim != y.ndim || !std::equal(x.shape, x.shape + x.ndim, y.shape)) return false;
  if (x.itemsize != y.itemsize || !lie_alike(x, y)) return {};
  std::string_view format(x.format);
  if (!format.empty() && (format[0] == '=' || format[0] == '@')) format.remove_prefix(1);
  if (format == "f" || format == "Zf") return equal_elements<float>(x, y);
  if (format == "d" || format == "Zd") return equal_elements<double>(x, y);
  if (format.size() == 1 && std::string_view("?bBhHiIlLqQ").find(format[0]) != std::string_view::npos) {
    return equal_bytes(x, y);
  }
  return {};
}

}  // namespace partax
