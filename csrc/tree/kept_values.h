// The values that a call has in common with an earlier one, as that was matched: of these only static
// values that may have changed since, such as functions, are looked at again.
#pragma once

#include "tree/leaf_buffer.h"
#include "tree/tree_spec.h"

namespace partax {

class KeptValues {
 public:
  // `leaves` are those of a match of `spec`, and `is_kept` says for each of its values whether it stays. Without leaves
  // it tells which these are, and no more.
  KeptValues(const TreeSpec& spec, const std::vector<bool>& is_kept, const LeafBuffer* leaves);

  bool has(std::size_t value) const noexcept { return parts_[value].is_kept; }
  // Appends what the value gives to a match; false if it has changed. May run user code.
  bool append_to(LeafBuffer& leaves, std::size_t value) const;
  // For each leaf of a match whether it is of a value that stays.
  const std::vector<bool>& is_kept() const noexcept { return is_kept_; }
  // Whether a node of the spec is of a value that stays.
  bool has_node(std::size_t node) const noexcept;
  // Drops a leaf of the match: whoever appends the values replaces the None that is there.
  void clear_leaf(std::size_t leaf);
  int traverse(visitproc visit, void* arg) const { return visit_all(visit, arg, parts_, leaves_); }

 private:
  // A static value that may be another one since: what it was, and the object.
  struct Changeable {
    StaticValue before;
    Ref object;
    int traverse(visitproc visit, void* arg) const { return visit_all(visit, arg, before, object); }
  };
  struct Part : SpecPart {
    bool is_kept = false;
    std::size_t first_leaf = 0, num_leaves = 0;  // of a match
    std::size_t own_leaf = 0;                    // of those that are kept here
    std::vector<Changeable> may_change;
    int traverse(visitproc visit, void* arg) const { return visit_all(visit, arg, may_change); }
  };

  std::vector<Part> parts_;
  std::vector<bool> is_kept_;
  LeafBuffer leaves_;  // of the values that stay
};

}  // namespace partax
