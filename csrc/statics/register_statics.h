// statics/ compares static values, callables included.
// In: values that are no arrays. Out: their hash, and snapshots that tell later whether another value is the same.
#pragma once

#include <pybind11/pybind11.h>

namespace partax {

void register_statics(pybind11::module_& module);

}  // namespace partax
