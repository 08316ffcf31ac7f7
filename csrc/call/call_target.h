// A call of a target, or of the program that jax has compiled for one.
#pragma once

#include "call/entry_table.h"
#include "tree/leaf_buffer.h"

namespace partax {

// The caller must keep `target` and `entry`.
inline Ref call_target(PyObject* target, const Entry& entry, LeafBuffer& leaves) {
  if (entry.takes_tuple) return Ref::checked(PyObject_CallOneArg(target, leaves.tuple().get()));
  return Ref::checked(
      PyObject_Vectorcall(target, leaves.arguments(), leaves.size() | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
}

}  // namespace partax
