// Object -> static part and dynamic leaves.
#pragma once

#include <optional>

#include "base/python_api.h"
#include "base/stack_room.h"
#include "classes/predicates.h"
#include "tree/leaf_buffer.h"
#include "tree/tree_spec.h"

namespace partax {

// ---- What follows a walk.

// How one child hangs on its parent. All pointers are borrowed and live as long as the child is walked.
struct Step {
  Kind kind = Kind::kTuple;        // of the parent
  const TypeInfo* info = nullptr;  // of the parent
  PyObject* parent = nullptr;
  std::size_t index = 0;
  PyObject* key = nullptr;  // of a dict's child

  // How a path names the child.
  enum class By : std::uint8_t { kIndex, kName, kKey, kFunctions };
  By by() const noexcept {
    if (is_dict(kind)) return By::kKey;
    if (is_named_by_functions(kind)) return By::kFunctions;
    return index < info->child_names.size() ? By::kName : By::kIndex;
  }
  PyObject* name() const noexcept { return info->child_names[index].get(); }
};

class WalkObserver {
 public:
  virtual ~WalkObserver() = default;
  // An object is met, where `step` leads (null for the root); true makes a leaf of it.
  virtual bool enter(const Step* step, PyObject* object) = 0;
  // The object met last is a leaf, and so left again; true makes it a dynamic one.
  virtual bool leaf(PyObject* object) = 0;
  // The same of a leaf below the node that was met last, which is not met itself: its answer where that is known, so
  // that long rows of leaves are quick. It may run Python.
  virtual std::optional<bool> known_leaf(PyObject* leaf, const Step& step) = 0;
  // The walk below the node that was met last, of those not left, is over.
  virtual void leave() = 0;
};

// ---- The walk.

// Which leaves other than arrays are traced: filter_jit's option `dynamic`.
class DynamicRule {
 public:
  DynamicRule() noexcept = default;  // arrays alone
  // From None, a predicate on leaves, or a tuple of names of arguments.
  explicit DynamicRule(PyObject* option);

  bool any() const noexcept { return native_ || predicate_; }
  // For each of `count` values of a call, whether the rule applies to it; `shape` is their `CallShape`.
  std::vector<bool> values(std::size_t count, const Ref& shape) const;
  // Whether a leaf that is not an array is traced. Raises a WalkError.
  bool holds(PyObject* leaf) const;
  int traverse(visitproc visit, void* arg) const { return visit_all(visit, arg, predicate_, names_); }

 private:
  std::optional<Predicate> native_;
  Ref predicate_;  // if it is not a native one
  Ref names_;      // of the values that it applies to; empty if to all
};

struct FlattenOptions {
  bool abstract = false;  // jax.ShapeDtypeStruct is a dynamic leaf
  Callables callables = Callables::kByStructure;
  const DynamicRule* rule = nullptr;  // the leaves other than arrays that are dynamic,
  std::vector<bool> rule_values;      // in these values of the call
  bool hashed = true;                 // compute the hash; refuses values that cannot be static
  bool keyed = false;                 // store the path segments of the children of registered nodes
  bool every_leaf = false;            // every leaf counts as dynamic (jax.tree.flatten)
  bool none_is_leaf = false;
  bool one_level = false;                  // the children of the root are leaves, whatever they are
  bool dynamic_runs = false;               // consecutive dynamic leaves of one sequence become one node
  PyObject* unsortable = PyExc_TypeError;  // what a dict whose keys cannot be sorted raises
  PyObject* is_leaf = nullptr;             // callable (node) -> bool, or null
  WalkObserver* observer = nullptr;
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
  static constexpr int kFirstMilestone = 64;

  void walk(PyObject* object, const Step* step);
  void walk_object(PyObject* object);
  void node(PyObject* object, const TypeInfo& info, std::size_t index);
  void leaf(PyObject* object, bool dynamic);
  void add_leaf(PyObject* object, bool dynamic);
  bool add_known_leaf(PyObject* object, const Step& step);
  void dict_children(PyObject* dict, PyObject* keys, std::size_t index);
  bool is_dynamic_leaf(PyObject* object, LeafSort sort) const;
  void fields(PyObject* object, const TypeInfo& info, std::size_t index);
  void registered(PyObject* object, const TypeInfo& info, std::size_t index);
  void name_children(PyObject* object, std::size_t count);
  void begin_entries(const TypeInfo& info, const Entries& entries);
  std::size_t begin_node(Kind kind, std::size_t arity, const TypeInfo* info);
  void add_static(Ref value, Unhashable unhashable);
  void remember(const TypeInfo& info);
  template <typename Get>
  void child(const Step& step, Get&& get);
  template <typename Item>
  void sequence(std::size_t count, Item&& item, PyObject* parent, std::size_t index);

  TreeSpec& spec_;
  LeafBuffer& leaves_;
  FlattenOptions options_;
  const StackReserve stack_ = stack_reserve();
  bool traces_more_ = false;  // the rule applies here
  int depth_ = 0;
  PyObject* milestone_ = nullptr;  // borrowed
  int milestone_depth_ = kMaxDepth;
};

// The keys of a dictionary of some kind in jax's order: sorted; an OrderedDict's in its own order.
Ref keys_in_order(PyObject* dict, Kind kind, PyObject* unsortable = PyExc_TypeError);

}  // namespace partax
