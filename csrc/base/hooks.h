// What comes from Python, jax and Equinox, most of it when partax is imported.
#pragma once

#include "base/python_api.h"

namespace partax {

// A reference for the life of the process. It has no destructor: the interpreter may be gone by then.
class ImmortalRef {
 public:
  constexpr ImmortalRef() noexcept = default;
  PyObject* get() const noexcept { return object_; }
  PyTypeObject* type() const noexcept { return reinterpret_cast<PyTypeObject*>(object_); }
  bool is(const PyTypeObject* type) const noexcept { return reinterpret_cast<const PyObject*>(type) == object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }
  void set(PyObject* object) noexcept { const Ref before = Ref::steal(std::exchange(object_, Py_XNewRef(object))); }

 private:
  PyObject* object_ = nullptr;
};

// In the header, so that a hit reads it without a call.
inline struct Hooks {
  ImmortalRef default_dict;       // collections.defaultdict
  ImmortalRef described_filter;   // partax._pytree.filters.Filter
  ImmortalRef flatten_one_level;  // (node) -> (children, aux data), None for a leaf
  ImmortalRef is_node;            // jax.tree_util.is_tree_node: (class) -> bool
  ImmortalRef jax_array;          // jax.Array
  ImmortalRef jax_array_type;     // the type of concrete arrays, or null until one tells it
  ImmortalRef jitted;             // the type of what jax.jit returns
  ImmortalRef missing;            // Equinox's marker of an absent field; null until its first module is met
  ImmortalRef partial;            // functools.partial
  ImmortalRef predicates;         // the Python filters that have the Predicates for their calls: a tuple in that order
  ImmortalRef registered;         // jax's dictionary of registered node types, or null where jax has none
  ImmortalRef tree_def;           // jax.tree_util.PyTreeDef, part of the options of jax.jit
  ImmortalRef wrapper;            // the type of what filter_jit returns
  ImmortalRef wrapper_names;      // of what Equinox keeps on modules that wrap a function: a tuple
} hooks;

}  // namespace partax
