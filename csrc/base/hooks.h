// What comes from Python or jax when partax is imported. Each folder has a struct of its own needs, and no other's.
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

struct Hooks {
  ImmortalRef abstract;           // abc.ABCMeta
  ImmortalRef default_dict;       // collections.defaultdict
  ImmortalRef flatten_one_level;  // (node) -> (children, aux data), None for a leaf
  ImmortalRef is_node;            // jax.tree_util.is_tree_node: (class) -> bool
  ImmortalRef jax_array;          // jax.Array
  ImmortalRef jax_array_type;     // the type of concrete arrays, or null until one tells it
  ImmortalRef registered;         // jax's dictionary of registered node types, or null where jax has none
};

// In the header, so that a hit reads it without a call.
inline Hooks all_hooks;
inline Hooks& hooks() noexcept { return all_hooks; }

}  // namespace partax
