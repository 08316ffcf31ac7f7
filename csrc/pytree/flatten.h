// Object -> static part and dynamic leaves.
#pragma once

#include <functional>
#include <optional>

#include "base/python_api.h"
#include "base/stack_room.h"
#include "pytree/leaf_buffer.h"
#include "pytree/tree_spec.h"
#include "types/instance_fields.h"
#include "types/predicates.h"

namespace partax {

// Which leaves other than arrays are traced: `dynamic` of filter_jit, or all but static arguments, as in jax.jit.
class DynamicRule {
 public:
  DynamicRule() noexcept = default;  // arrays alone
  // From None, a predicate on leaves, or a tuple of names of arguments. With `static_parameters`, unless it is None,
  // all other arguments consist of arrays and numbers.
  DynamicRule(PyObject* dynamic, PyObject* static_parameters);

  bool any() const noexcept { return native_ || predicate_; }
  // Whether a leaf that is neither an array nor a number is refused.
  bool refuses_others() const noexcept { return static_cast<bool>(static_parameters_); }
  // For each value of a call, whether it is a static argument.
  std::vector<bool> static_values(const Ref& shape) const;
  // For each of `count` values of a call, whether the rule applies to it; `shape` is their `CallShape`.
  std::vector<bool> values(std::size_t count, const Ref& shape) const;
  // Whether a leaf that is not an array is traced. Raises a WalkError.
  bool holds(PyObject* leaf) const;
  int traverse(visitproc visit, void* arg) const {
    return visit_all(visit, arg, predicate_, names_, static_parameters_);
  }

 private:
  std::optional<Predicate> native_;
  Ref predicate_;          // if it is not a native one
  Ref names_;              // of the values that it applies to; empty if to all
  Ref static_parameters_;  // names and positions; empty for filter_jit
};

struct FlattenOptions {
  bool abstract = false;  // jax.ShapeDtypeStruct is a dynamic leaf
  Callables callables = Callables::kByStructure;
  const DynamicRule* rule = nullptr;       // the leaves other than arrays that are dynamic,
  std::vector<bool> rule_values;           // in these values of the call
  std::vector<bool> static_values;         // values of the call that are static as a whole, even if they are trees
  bool hashed = true;                      // compute the hash; refuses values that cannot be static
  bool keyed = false;                      // store the keys of the children of registered nodes
  bool every_leaf = false;                 // every leaf counts as dynamic (jax.tree.flatten)
  std::function<bool(PyObject*)> is_leaf;  // asked about all objects, if there is one
  std::vector<Ref>* objects = nullptr;  // if not null: gets the object of each node, where no runs of leaves are made
};

// Walks trees into a spec (loose: it holds the static values themselves). Errors are WalkErrors with the path below
// the tree's root.
class Flattener {
 public:
  Flattener(TreeSpec& spec, LeafBuffer& leaves, const FlattenOptions& options)
      : spec_(spec), leaves_(leaves), options_(options) {
    spec_.callables = options.callables;
  }

  // The whole of one tree.
  void tree(PyObject* root);
  // The values of a call; the origin of an error is the value's index.
  void call(PyObject* const* values, std::size_t count);

 private:
  void walk(PyObject* object);
  void node(PyObject* object, const TypeInfo& info, std::size_t index);
  void leaf(PyObject* object, bool dynamic);
  void dict_children(PyObject* dict, PyObject* keys);
  bool is_dynamic_leaf(PyObject* object, LeafSort sort) const;
  void fields(PyObject* object, const TypeInfo& info, std::size_t index);
  void registered(PyObject* object, const TypeInfo& info, std::size_t index);
  void name_children(PyObject* object);
  bool begin_entries(PyObject* object, const TypeInfo& info, const OneLevel& level);
  std::size_t begin_node(Kind kind, std::size_t arity, const TypeInfo* info);
  void add_static(Ref value, Unhashable unhashable);
  void remember(const TypeInfo& info);
  template <typename Segment, typename Get>
  void child(Segment&& segment, Get&& get);
  template <typename Item>
  void sequence(std::size_t count, Item&& item, PyObject* parent, std::size_t index);

  TreeSpec& spec_;
  LeafBuffer& leaves_;
  FlattenOptions options_;
  const StackReserve stack_ = stack_reserve();
  bool traces_more_ = false;  // the rule applies here
  int depth_ = 0;
};

// The keys of a dictionary of some kind in jax's order: sorted; an OrderedDict's in its own order.
Ref keys_in_order(PyObject* dict, Kind kind);

}  // namespace partax
