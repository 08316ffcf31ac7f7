// The wrapper that filter_jit returns: a vectorcall type that runs the stages of a call in order.
#pragma once

#include "call.h"
#include "python_api.h"

namespace partax {

struct JitFunction {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject* function;  // the wrapped callable
  PyObject* self;      // the bound instance, or null
  PyObject* options;
  PyObject* cache;    // a CallCacheObject, or null before the first use
  StaticValue* seen;  // the callable as it was when the cache was found, or null where only arguments tell
  PyObject* dict;
  PyObject* weakrefs;
  bool callable_is_tree;  // the callable has children or arrays, so it is matched with the arguments
};

// Creates the Python types; returns (wrapper type, flatten, unflatten) for jax's registry.
Ref register_jit_function_types();
// A wrapper of `function`; finds the cache of an equal earlier one.
Ref make_jit_function(PyObject* function, PyObject* options);
bool is_jit_function(PyObject* object) noexcept;

// The wrapper behind `object`, with its cache found or made.
JitFunction& ready_jit(PyObject* object);
// Lets go of the cache if the callable has changed since it was found.
void renew_cache(PyObject* object);
CallCache& cache_of(const JitFunction& jit) noexcept;

}  // namespace partax
