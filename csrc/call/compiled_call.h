// A compiled program that is called as the function it was compiled from.
#pragma once

#include "base/python_api.h"

namespace partax {

// A function that matches the arguments with the key of a PreparedCall (the Python object) and runs `executable`, which
// has been compiled for it, on their arrays. A call with another static part raises a TypeError, which Python explains.
Ref make_compiled_call(PyObject* prepared, PyObject* executable);

}  // namespace partax
