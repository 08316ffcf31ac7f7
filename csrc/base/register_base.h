// base/ is what every stage stands on.
// In: any Python object. Out: what it is by its type, its fields, whether it is an array, errors that name its place.
#pragma once

#include <pybind11/pybind11.h>

namespace partax {

void register_base(pybind11::module_& module);

}  // namespace partax
