#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "base/boxed.h"
#include "base/error_path.h"
#include "base/hooks.h"
#include "partition/one_level.h"
#include "partition/partition.h"
#include "tree/rebuild.h"

namespace partax {
namespace {

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

  bool has_work() const { return empty_tuples_ || !targets_.empty(); }
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

  explicit operator bool() const noexcept {
    return is_there_ && view_.format != nullptr && PyBuffer_IsContiguous(&view_, 'C') != 0;
  }
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

}  // namespace

Ref tree_find(PyObject* tree, PyObject* targets, PyObject* is_leaf, bool empty_tuples) {
  Finder finder(targets, empty_tuples);
  FlattenOptions options = every_leaf(is_leaf);
  options.dynamic_runs = true;
  options.unsortable = PyExc_ValueError;  // as jax's
  options.observer = finder.has_work() ? &finder : nullptr;
  return with_path("pytree", [&] {
    Flat flat;
    flatten_into(flat, tree, options);
    const Ref found = finder.has_work() ? finder.found_in(flat.leaves) : list_of({});
    return tuple_of({flat.leaves.list(), box(std::make_unique<TreeSpec>(std::move(flat.spec))), found});
  });
}

Ref tree_unflatten(PyObject* structure, PyObject* leaves) {
  if (Py_TYPE(structure) != Boxed<TreeSpec>::type) raise_error(PyExc_TypeError, "expected a Structure");
  const TreeSpec& tree = Boxed<TreeSpec>::in(structure);
  const Ref given = Ref::checked(PyList_AsTuple(leaves));  // which user code cannot change
  if (static_cast<std::size_t>(PyTuple_GET_SIZE(given.get())) != tree.num_dynamic) {
    raise_error(PyExc_ValueError, "expected as many leaves as the structure has");
  }
  return rebuild(tree, Items(given.get()).begin(), tree.num_dynamic);
}

std::optional<bool> equal_arrays(PyObject* a, PyObject* b) {
  const ImmortalRef& type = hooks().jax_array_type;
  if (!type || !type.is(Py_TYPE(a)) || !type.is(Py_TYPE(b))) return {};
  const Buffer left(a), right(b);
  if (!left || !right || std::strcmp((*left).format, (*right).format) != 0) return {};
  const Py_buffer &x = *left, &y = *right;
  if (x.ndim != y.ndim || !std::equal(x.shape, x.shape + x.ndim, y.shape)) return false;
  const char kind = x.format[std::strlen(x.format) - 1];
  if (std::strchr(x.format, 'Z') == nullptr && kind == 'f') return equal_elements<float>(x, y);
  if (std::strchr(x.format, 'Z') == nullptr && kind == 'd') return equal_elements<double>(x, y);
  if (std::strchr("?bBhHiIlLqQ", kind) == nullptr) return {};
  return x.len == 0 || std::memcmp(x.buf, y.buf, static_cast<std::size_t>(x.len)) == 0;
}

}  // namespace partax
