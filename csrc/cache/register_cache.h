// cache/ keeps what wrapped callables were compiled to.
// In: a callable, or a call's bound arguments flattened. Out: the callable's cache; the entry of an equal static part.
#pragma once

#include <pybind11/pybind11.h>

namespace partax {

void register_cache(pybind11::module_& module);

}  // namespace partax
