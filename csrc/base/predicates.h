// The built-in predicates on leaves, without a Python call.
#pragma once

#include "base/python_api.h"

namespace partax {

enum class Predicate : std::uint8_t { kIsArray, kIsArrayLike, kIsInexactArray, kIsInexactArrayLike };

bool holds(Predicate predicate, PyObject* object);
// The same; `by_type` is cleared where another object of the same type might give another answer.
bool holds(Predicate predicate, PyObject* object, bool& by_type);

// Python functions for the four, in the order of the enum; and which of them `function` is, or -1.
Ref predicate_functions();
int predicate_of(PyObject* function) noexcept;

}  // namespace partax
