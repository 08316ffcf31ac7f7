// The wrapper that filter_jit returns, as a Python type.
#pragma once

#include "static_key/static_value.h"

namespace partax {

struct JitFunction {
  PyObject_HEAD
  PyObject* weakrefs;
  vectorcallfunc vectorcall;
  PyObject* callable;  // what was wrapped: the function, or a method of it
  PyObject* function;  // the wrapped callable
  PyObject* self;      // the bound instance, or null
  PyObject* options;
  PyObject* cache;  // a CallCacheObject, or null before the first use
  PyObject* dict;
  bool callable_is_tree;  // the callable has children or arrays, so it is matched with the arguments
};

// Adds the Python types to the module.
void register_jit_function_types(PyObject* module);
// Whether the wrapped callable is a static value as a whole, as in jax.jit, though it may be a tree.
bool has_whole_callable(PyObject* options);
// A wrapper of `function`; finds the cache of an equal earlier one.
Ref make_jit_function(PyObject* function, PyObject* options);
// As a pytree: the children are the callable and the bound instance, the aux data the options.
Ref flatten_jit(PyObject* wrapper);
Ref unflatten_jit(PyObject* options, PyObject* children);
// Raises of anything else.
void check_is_wrapper(PyObject* object);

// The caller must hold the wrapper.
JitFunction& as_jit(PyObject* object) noexcept;
// The wrapped callable; raises of a wrapper that the garbage collector has cleared.
inline PyObject* function_of(const JitFunction& jit) {
  if (jit.function != nullptr) return jit.function;
  raise_error(PyExc_ReferenceError, "the wrapper is being deleted");
}

}  // namespace partax
