// classes/ knows what an object is by its type.
// In: any Python object. Out: its family, where its children and static fields are, whether it is an array.
#pragma once

#include <pybind11/pybind11.h>

namespace partax {

void register_classes(pybind11::module_& module);

}  // namespace partax
