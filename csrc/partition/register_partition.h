// partition/ splits trees by filters and joins them.
// In: trees, and filters of leaves by predicate, type and path. Out: trees or dictionaries of what each filter takes.
#pragma once

#include <pybind11/pybind11.h>

namespace partax {

void register_partition(pybind11::module_& module);

}  // namespace partax
