// The objects in the arguments of a call that its function may change in place, such as those of Flax nnx: which they
// are, and how the changes that a trace has found are made. What needs Python is in
// `partax._libraries.flax.graph_call`.
#pragma once

#include "call/bound_call.h"
#include "call/call_cache.h"
#include "tree/leaf_buffer.h"

namespace partax {

class Call;

// Of one call of a cache with the option `graph`.
class GraphObjects {
 public:
  explicit GraphObjects(BoundCall& call) noexcept : call_(call) {}

  // Whether arguments that match the program's key need no Python: their objects are the nodes of the key, and each is
  // in one place. `leaves` are those of the match.
  bool are_matched(const Program& program, const LeafBuffer& leaves) const;
  // Has the option `graph` find the objects, and replaces the arguments by what it makes of them.
  void read(Call& call);
  bool has_read() const noexcept { return static_cast<bool>(objects_); }
  // After a call: records in the program whether others with the same key need no Python.
  void record_completeness(const Program& program, const LeafBuffer& leaves) const;
  // Makes the changes in the outcome of a trace, all or none, and returns the result of the function.
  Ref apply(Call& call, const Ref& outcome, const Program& program, const LeafBuffer& leaves);
  // After `apply`: the call has set values of Variables at most, and needed no Python.
  bool changed_values_alone() const noexcept { return changed_values_alone_; }
  // All objects, a list, if Python has read them.
  const Ref& objects() const noexcept { return objects_; }

 private:
  BoundCall& call_;
  Ref objects_;
  bool changed_values_alone_ = false;
};

// Where a Variable of this node has its value; null for another node.
const Slot* variable_slot(const Node& node) noexcept;
// Has the nodes of a new key kept in a match that are such objects.
void mark_objects(Program& program);

}  // namespace partax
