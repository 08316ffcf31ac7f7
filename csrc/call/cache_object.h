// The Python object around a CallCache: what all wrappers of equal callables share.
#pragma once

#include "base/python_api.h"
#include "call/call_cache.h"

namespace partax {

// Creates the Python type and returns it.
Ref register_cache_type();
// A cache for a callable that has none yet.
Ref make_cache(PyObject* function, PyObject* options);
// The caller must hold `object` for as long as it uses the cache.
CallCache& cache_in(PyObject* object) noexcept;
// What the option `callables` says.
Callables callables_of(PyObject* options);
// The caches of all callables that live, or of one unless it is None.
Ref living_caches(PyObject* callable);

}  // namespace partax
