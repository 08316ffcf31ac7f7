// Equinox's predicates, which are Python functions: what they answer for a leaf whose class tells all, so that they are
// called for no other leaf than those.
#pragma once

#include <memory>
#include <optional>

#include "base/python_api.h"
#include "partition/class_test.h"

namespace partax {

struct KnownFunction {
  std::vector<ClassTest> classes;
  bool takes_instances = false;  // it is true of all instances of these; else it is asked about each
  bool asks_conversion = false;  // it is asked about what has `__jax_array__`; it is false of all else

  // Its answer, where the type of the object or its instance dictionary alone decides; `reach` is limited to how far
  // that goes. Runs no code of users.
  std::optional<bool> answer(PyObject* object, Reach& reach) const;
};

// What is known of a function; null of one that is not Equinox's own.
std::shared_ptr<const KnownFunction> known_function(PyObject* function);

}  // namespace partax
