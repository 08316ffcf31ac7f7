// What `bind` returns: a wrapper with arguments that are read, checked and kept once.
#pragma once

#include "base/python_api.h"

namespace partax {

// Creates the Python type and returns it.
Ref register_bound_function_type();
// Of a wrapper, a tuple of arguments and a dictionary of keywords.
Ref make_bound_function(PyObject* jit, PyObject* args, PyObject* kwargs, bool keeps_callable);

}  // namespace partax
