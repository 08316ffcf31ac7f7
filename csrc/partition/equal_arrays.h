// Whether two arrays of jax have the same values, where their memory is at hand.
#pragma once

#include <optional>

#include "base/python_api.h"

namespace partax {

// By `==` of each pair of elements, so that a NaN is equal to nothing. Empty where it has to be asked of jax: of other
// objects, of arrays that are not in this process's memory, and of dtypes that buffers do not tell. Raises PythonError.
std::optional<bool> equal_arrays(PyObject* a, PyObject* b);

}  // namespace partax
