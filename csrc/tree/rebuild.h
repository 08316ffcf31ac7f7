// Spec and leaves -> object.
#pragma once

#include "base/python_api.h"
#include "tree/tree_spec.h"

namespace partax {

// Where rebuilt leaves come from.
class LeafSource {
 public:
  virtual ~LeafSource() = default;
  // The leaf at `index` of the dynamic leaves, as a new reference.
  virtual Ref leaf(std::size_t index) = 0;
  // The object that stands for a static value of the spec, borrowed; null where that is the spec's own, as it is for
  // all unless `has_own_statics`.
  virtual PyObject* own_static(std::size_t index) const {
    (void)index;
    return nullptr;
  }
  virtual bool has_own_statics() const { return false; }
  // Where a node `is_passthrough`: the whole of it, if it is there, and `next_leaf` is moved past its leaves.
  virtual Ref whole(std::size_t& next_leaf) {
    (void)next_leaf;
    return {};
  }
  // New references to `count` leaves from `index` on.
  virtual void fill(PyObject** items, std::size_t index, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) items[i] = leaf(index + i).release();
  }
};

// Leaves in a row, which somebody keeps.
class ListedLeaves final : public LeafSource {
 public:
  ListedLeaves(PyObject* const* leaves, std::size_t count) : leaves_(leaves), count_(count) {}
  explicit ListedLeaves(const Ref& tuple)
      : ListedLeaves(reinterpret_cast<PyTupleObject*>(tuple.get())->ob_item,
                     static_cast<std::size_t>(PyTuple_GET_SIZE(tuple.get()))) {}
  Ref leaf(std::size_t index) override { return Ref::borrow(at(index)); }
  void fill(PyObject** items, std::size_t index, std::size_t count) override {
    for (std::size_t i = 0; i < count; ++i) items[i] = Py_NewRef(at(index + i));
  }

 private:
  PyObject* at(std::size_t index) const {
    if (index < count_) return leaves_[index];
    raise_error(PyExc_RuntimeError, "partax: a tree got fewer leaves than it has");
  }

  PyObject* const* leaves_;
  std::size_t count_;
};

// Exactly what jax.tree.unflatten would give. The spec must hold its values (loose or handed out).
// Raises PythonError.
Ref rebuild(const TreeSpec& spec, LeafSource& leaves);
// The children of a kCall spec, a tuple.
Ref rebuild_call(const TreeSpec& spec, LeafSource& leaves);

}  // namespace partax
