// The built-in predicates on leaves, without a Python call.
#pragma once

#include "base/hooks.h"
#include "classes/type_lookup.h"

namespace partax {

enum class Predicate : std::uint8_t { kIsArray, kIsArrayLike, kIsInexactArray, kIsInexactArrayLike };

bool holds(Predicate predicate, PyObject* object);
// The same; `reach` is limited to how far the answer goes.
bool holds(Predicate predicate, PyObject* object, Reach& reach);

// isinstance(object, jax.Array), which a tracer may be.
inline bool is_jax_array(PyObject* object) {
  return checked_int(PyObject_IsInstance(object, hooks().jax_array.get())) == 1;
}

// `__jax_array__`, interned. Whether an object has none, as far as that is seen without code of users.
PyObject* array_conversion_name();
bool plainly_converts_not(PyObject* object, Reach& reach);

// The filters of Python that have the four functions for their calls, a tuple in the order of Predicate.
inline ImmortalRef predicate_filters;
// Adds Python functions for the four to the module; and which of them, or of the filters, `function` is, or -1.
void add_predicates(PyObject* module);
int predicate_of(PyObject* function) noexcept;

}  // namespace partax
