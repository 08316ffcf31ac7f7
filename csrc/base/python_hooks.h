// The functions of partax's own Python that C++ calls: all of them, in one table.
#pragma once

#include "base/python_api.h"

namespace partax {

// One of them. Its module is imported where it is called first, and it is found only then.
class PythonFunction {
 public:
  constexpr PythonFunction(const char* module, const char* name) noexcept : module_(module), name_(name) {}

  PyObject* get() {
    if (function_ == nullptr) function_ = find().release();
    return function_;
  }

  template <typename... Arguments>
  Ref operator()(const Arguments&... arguments) {
    assert(PyErr_Occurred() == nullptr);  // or what comes of it is anybody's guess
    PyObject* const given[] = {as_argument(arguments)..., nullptr};
    PyObject* const function = get();
    const Away away;
    return Ref::checked(PyObject_Vectorcall(function, given, sizeof...(arguments), nullptr));
  }

 private:
  static PyObject* as_argument(PyObject* object) noexcept { return object; }
  static PyObject* as_argument(const Ref& object) noexcept { return object.get(); }
  Ref find() const {
    const Ref module = Ref::checked(PyImport_ImportModule(module_));
    return attribute(module.get(), name_);
  }

  const char *module_, *name_;
  PyObject* function_ = nullptr;  // for the life of the process
};

namespace python {

inline PythonFunction child_keys{"partax._jax.nodes", "child_keys"};
inline PythonFunction child_segments{"partax._jax.nodes", "child_segments"};
inline PythonFunction unflatten_node{"partax._jax.nodes", "unflatten_node"};
inline PythonFunction order_of_call{"partax._families.dataclasses", "order_of_call"};
inline PythonFunction is_declared{"partax._families.declared", "is_declared"};
inline PythonFunction order_of{"partax._families.declared", "order_of"};
inline PythonFunction is_frozen{"partax._families.describe", "is_frozen"};
inline PythonFunction is_inexact{"partax._families.describe", "is_inexact"};
inline PythonFunction asked_by_equinox{"partax._families.equinox", "asked_by_equinox"};
inline PythonFunction Proof{"partax._functions.proof", "Proof"};
inline PythonFunction is_same{"partax._functions.proof", "is_same"};
inline PythonFunction difference_text{"partax._functions.proof", "difference_text"};
inline PythonFunction describe_type{"partax._pytree.type_description", "describe_type"};
inline PythonFunction wrong_keys{"partax._pytree.flat_partition", "wrong_keys"};
inline PythonFunction flat_keys{"partax._pytree.paths", "flat_keys"};
inline PythonFunction taken_by_path{"partax._pytree.paths", "taken_by_path"};
inline PythonFunction leaf_paths{"partax._pytree.spec_data", "leaf_paths"};
inline PythonFunction static_path{"partax._pytree.spec_data", "static_path"};
inline PythonFunction tree_text{"partax._pytree.texts", "tree_text"};
inline PythonFunction unequal_statics{"partax._pytree.texts", "unequal_statics"};
inline PythonFunction unlike_nodes{"partax._pytree.texts", "unlike_nodes"};
inline PythonFunction direct_run{"partax._jit.methods", "direct_run"};
inline PythonFunction refuse_donated{"partax._jit.methods", "refuse_donated"};
inline PythonFunction cache_miss{"partax._jit.cache_miss", "cache_miss"};
inline PythonFunction explain_failure{"partax._jit.runtime_errors", "explain_failure"};
inline PythonFunction refuse_lost_arrays{"partax._jit.forwarded_arrays", "refuse_lost_arrays"};
inline PythonFunction to_device{"partax._jit.forwarded_arrays", "to_device"};
inline PythonFunction call_parameters{"partax._jit.options", "call_parameters"};
inline PythonFunction values_meant{"partax._jit.options", "values_meant"};

}  // namespace python
}  // namespace partax
