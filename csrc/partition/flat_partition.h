// A tree as dictionaries from path to leaf, and back.
#pragma once

#include "base/python_api.h"

namespace partax {

// (spec, a dictionary from path to leaf for each filter[, one for the rest]). Without `rest_is_static`, the last
// dictionary has what no filter takes; else the spec has it. `separator` and `is_leaf` may be None. Raises PythonError,
// with a path from `name`.
Ref flat_partition(PyObject* tree, PyObject* filters, PyObject* separator, bool rest_is_static, PyObject* is_leaf,
                   const std::string& name);
// The tree of a FlatSpec with the leaves of the dictionaries (a tuple of dicts).
Ref flat_combine(PyObject* spec, PyObject* dicts);

}  // namespace partax
