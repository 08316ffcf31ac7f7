// The functions of partax's own Python that C++ calls: all of them, in one table.
#pragma once

#include "base/python_api.h"

namespace partax {

// Imported where it is called first.
class PythonFunction {
 public:
  constexpr PythonFunction(const char* module, const char* name) noexcept : module_(module), name_(name) {}

  PyObject* get() {
    if (function_ == nullptr) {
      const Ref module = Ref::checked(PyImport_ImportModule(module_));
      function_ = attribute(module.get(), name_).release();
    }
    return function_;
  }

  template <typename... Arguments>
  Ref operator()(const Arguments&... arguments) {
    assert(PyErr_Occurred() == nullptr);  // or what comes of it is anybody's guess
    PyObject* const values[] = {as_argument(arguments)..., nullptr};
    PyObject* const function = get();
    const Away away;
    return Ref::checked(PyObject_Vectorcall(function, values, sizeof...(arguments), nullptr));
  }

 private:
  static PyObject* as_argument(PyObject* object) noexcept { return object; }
  static PyObject* as_argument(const Ref& object) noexcept { return object.get(); }

  const char *module_, *name_;
  PyObject* function_ = nullptr;  // for the life of the process
};

namespace python {

inline PythonFunction child_keys{"partax._jax.nodes", "child_keys"};
inline PythonFunction read_entries{"partax._families.flax", "read_entries"};
inline PythonFunction is_inexact{"partax._families.describe", "is_inexact"};
inline PythonFunction is_untraced{"partax._jax.private", "is_untraced"};
inline PythonFunction jit_parts{"partax._jax.private", "jit_parts"};
inline PythonFunction Proof{"partax._functions.proof", "Proof"};
inline PythonFunction is_same{"partax._functions.proof", "is_same"};
inline PythonFunction difference_text{"partax._functions.proof", "difference_text"};
inline PythonFunction equal_copy{"partax._families.objects", "equal_copy"};
inline PythonFunction describe_type{"partax._families.describe", "describe_type"};
inline PythonFunction flat_keys{"partax._pytree.paths", "flat_keys"};
inline PythonFunction match_paths{"partax._pytree.paths", "match_paths"};
inline PythonFunction spec_data{"partax._pytree.spec_data", "spec_data"};
inline PythonFunction static_path{"partax._pytree.spec_data", "static_path"};
inline PythonFunction difference{"partax._pytree.texts", "difference"};
inline PythonFunction node_text{"partax._pytree.texts", "node_text"};
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
