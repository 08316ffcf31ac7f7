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
  // The static value at `index`.
  virtual Ref static_value(const TreeSpec& spec, std::size_t index) { return spec.statics[index].value(); }
  // Whether there is one though the spec holds none: a field may be absent.
  virtual bool gives_static(std::size_t index) const {
    (void)index;
    return false;
  }
  // Whether that is what the spec holds, where it is known by identity; and whether it is of all of them.
  virtual bool is_stored(std::size_t index) const {
    (void)index;
    return true;
  }
  virtual bool all_stored() const { return true; }
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

// Leaves in a row.
class ListedLeaves final : public LeafSource {
 public:
  explicit ListedLeaves(const std::vector<Ref>& leaves) : leaves_(leaves) {}
  Ref leaf(std::size_t index) override { return leaves_.at(index); }

 private:
  const std::vector<Ref>& leaves_;
};

// Exactly what jax.tree.unflatten would give. The spec must hold its values (loose or handed out).
// Raises PythonError.
Ref rebuild(const TreeSpec& spec, LeafSource& leaves);
// The children of a kCall spec.
std::vector<Ref> rebuild_call(const TreeSpec& spec, LeafSource& leaves);

}  // namespace partax
