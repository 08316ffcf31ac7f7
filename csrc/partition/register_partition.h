// partition/ splits trees by filters, joins them, and works on every leaf of them.
// In: trees, and filters of leaves by predicate, type and path. Out: trees, leaves and structures, and dictionaries.
#pragma once

#include <pybind11/pybind11.h>

namespace partax {

void register_partition(pybind11::module_& module);

}  // namespace partax
