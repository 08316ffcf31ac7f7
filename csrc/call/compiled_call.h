// A compiled program that is called as the function it was compiled from.
#pragma once

#include "base/python_api.h"
#include "cache/entry_table.h"

namespace partax {

// A function that matches the arguments with the entry's key and runs `executable` on their arrays. A call
// with another static part raises a TypeError, which Python explains.
Ref make_compiled_call(PyObject* jit, EntryPtr entry, PyObject* executable);

}  // namespace partax
