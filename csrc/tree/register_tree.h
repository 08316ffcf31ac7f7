// tree/ takes trees apart and makes them again.
// In: a tree. Out: its dynamic leaves and its static part, which matches other trees and rebuilds this one.
#pragma once

#include <pybind11/pybind11.h>

namespace partax {

void register_tree(pybind11::module_& module);

}  // namespace partax
