// Deallocating objects that hold one another: a chain of any length takes only so much of the C stack. CPython's own
// trashcan lets ten thousand nest on 3.13, for which the stack of a small thread has no room.
#pragma once

#include "base/python_api.h"

namespace partax {

// What an object begins with that may hold others of its type.
struct NestableHead {
  PyObject_HEAD
  PyObject* weakrefs;  // null for ever in a type without
};

// The whole `tp_dealloc` of such an object: `let_go(self)` drops all that it holds. Inside of too many others it waits
// until they are done.
void dealloc_nested(PyObject* self, void (*let_go)(PyObject*) noexcept) noexcept;

}  // namespace partax
