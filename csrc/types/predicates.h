// The built-in predicates on leaves, without a Python call.
#pragma once

#include "base/hooks.h"
#include "base/owned_reads.h"

namespace partax {

enum class Predicate : std::uint8_t { kIsArray, kIsArrayLike, kIsInexactArray, kIsInexactArrayLike };

bool holds(Predicate predicate, PyObject* object);

// isinstance(object, jax.Array), which a tracer may be.
inline bool is_jax_array(PyObject* object) {
  return checked_int(PyObject_IsInstance(object, hooks.jax_array.get())) == 1;
}

// Adds Python functions for them to the module.
void add_predicates(PyObject* module);
// Which of the Python filters that call them this is, or -1.
int predicate_of(PyObject* filter) noexcept;

}  // namespace partax
