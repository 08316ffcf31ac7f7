// The objects in the arguments of a call that its function may change in place, such as those of Flax nnx: which they
// are, and how what a trace has done to them is done to them. What needs Python is in
// `partax._libraries.flax.graph_call`.
#pragma once

#include "call/bound_call.h"
#include "call/call_cache.h"
#include "tree/leaf_buffer.h"

namespace partax {

// A variable of a call: which node of the key it was, what it held, and which leaf of the call that was.
struct HeldVariable {
  Ref owner, value;
  std::size_t node, leaf;
  bool is_array;  // else it held no array, or more than one, and `leaf` is none
  int traverse(visitproc visit, void* arg) const { return visit_all(visit, arg, owner, value); }
  // What it holds now; empty where there is nothing.
  Ref now() const noexcept;
};

// Of one call of a cache with the option `graph`.
class GraphObjects {
 public:
  explicit GraphObjects(BoundCall& call) noexcept : call_(call) {}

  // Whether arguments that match the entry's key are to be taken as they are: their objects are the nodes of the key,
  // and each is in one place. `leaves` are those of the match.
  bool are_in(const Entry& entry, const LeafBuffer& leaves) const;
  // Has Python read the arguments, and goes on with what it makes of them. It asks for the call under way.
  void read();
  bool has_read() const noexcept { return static_cast<bool>(objects_); }
  // After a call: whether others with the same key need no Python.
  void learn(const Entry& entry, const LeafBuffer& leaves) const;
  // Does what is in the outcome of a trace to the objects, all or nothing, and gives the result of the function.
  Ref apply(const Ref& outcome, const Entry& entry, const LeafBuffer& leaves);
  // After it: whether the function has done nothing but given variables other values, and Python was not needed.
  bool may_be_bound() const noexcept { return is_plain_; }
  // The variables of a match.
  std::vector<HeldVariable> variables(const Entry& entry, const LeafBuffer& leaves) const;
  // All objects, a list, if Python has read them.
  const Ref& objects() const noexcept { return objects_; }

 private:
  BoundCall& call_;
  Ref objects_;
  bool is_plain_ = false;
};

// Has the nodes of a new key kept in a match that are such objects.
void note_objects(Entry& entry);
// What `nnx.cached_partial` leaves for the nnx.jit that it calls, which is the next one: a call takes it, so that
// nobody else does.
void take_static_cache();
// Where `nnx.cached_partial` leaves it: an attribute that is None otherwise.
void set_static_cache(PyObject* owner, PyObject* name);
// Where an object has its value: the descriptors of a variable's value, of its state, and of the trace in a state.
void set_variable_slots(PyObject* value, PyObject* state, PyObject* trace);

}  // namespace partax
