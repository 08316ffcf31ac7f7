// The output of a trace: the static part of the result, and for each of its arrays where a call finds it; what a target
// returns to jax of it, and the user's result made of that.
#pragma once

#include "pytree/leaf_buffer.h"
#include "pytree/rebuild.h"
#include "pytree/tree_spec.h"

namespace partax {

struct TraceOutput {
  TreeSpec spec;  // every array is a dynamic leaf
  // For each dynamic leaf: i >= 0 is result i of the executable; i < 0 is the call's own input leaf ~i, forwarded.
  std::vector<std::int32_t> source;
  // The nodes that are returned unchanged, in order; none of them is in another.
  std::vector<PassthroughNode> passthroughs;
  // For each static value of the spec: the index in the key of the call's own that it is, or kStored for one that stays
  // as it is. Empty if all stay.
  static constexpr std::int32_t kStored = -1;
  std::vector<std::int32_t> static_source;
  bool has_own_objects = false;  // some value that stays is an object that no call of another function may get
  Ref shardings;                 // explicit out_shardings, one for each result, or null
  std::shared_ptr<std::size_t> calls = std::make_shared<std::size_t>(0);

  // Finds the largest nodes of the result that an argument has too: of the same types, with the same static values, and
  // with its arrays, forwarded, in the same order. Only of types whose instances never change, at any depth.
  // `arguments` is what was flattened for the trace. To be called before `find_static_sources`.
  void find_passthroughs(const TreeSpec& arguments);
  // Finds the static values of the result that are the call's own, by identity, and takes snapshots of the others.
  // `key` is the call's key, `arguments` what was flattened for it.
  void find_static_sources(const TreeSpec& arguments, const TreeSpec& key);
  int traverse(visitproc visit, void* arg) const { return visit_all(visit, arg, shardings, spec); }
};

// Where jax's caches find an output. They may outlive the program of the trace, which then empties this.
struct OutputSlot {
  std::shared_ptr<const TraceOutput> output;
  Ref stored;  // the result of the trace as it is stored: bytes, or None, or nothing
};

// Adds the opaque node types to the module, and what jax's registry takes to make one, which a hit does too.
void register_trace_output_types(PyObject* module);

// The opaque pytree node that a target returns: unflattens to itself, so that jax keeps its fast path.
Ref make_output_node(std::shared_ptr<OutputSlot> slot, Ref results);
bool is_output_node(PyObject* object) noexcept;
// Raises if the program of the trace is gone.
std::shared_ptr<const TraceOutput> output_of(PyObject* node);
// A node of the same structure with other children; raises of other objects.
Ref with_children(PyObject* node, Ref children);
// A node of a program that gives back the input leaves `through` too, after the other results: a call takes them from
// there, and not from its arguments. Raises of other objects.
Ref with_leaves_through(PyObject* node, Ref children, PyObject* through);
// Of an output node, as TraceOutput::source, for the program that it is from.
const std::vector<std::int32_t>& sources_of(PyObject* node);
// (its children, a tuple; its aux data). Raises of other objects.
Ref flatten_output(PyObject* node);
Ref results_of(PyObject* node);

// The trace's result as it is stored, which the node's trace keeps: bytes, or None. Raises of other objects.
void set_stored_result(PyObject* node, Ref stored);
Ref stored_result(PyObject* node);

// The user's result from what a target returned for these input leaves.
Ref user_result(PyObject* returned, const LeafBuffer& inputs);

}  // namespace partax
