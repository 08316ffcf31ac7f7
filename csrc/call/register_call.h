// call/ runs a wrapped callable, and keeps what it was compiled to.
// In: the arguments of a call. Out: the result of its compiled program, rebuilt; or the error, explained.
#pragma once

#include <pybind11/pybind11.h>

namespace partax {

void register_call(pybind11::module_& module);

}  // namespace partax
