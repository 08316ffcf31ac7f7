// The jax.jit target of a new entry.
#pragma once

#include "cache/entry_table.h"
#include "call/call_frame.h"
#include "tree/leaf_buffer.h"

namespace partax {

// Python makes the jax.jit target, and may trace it to know which arguments it must not donate. Tells whether it did,
// or another thread was first.
bool build_target(CallFrame& frame, Entry& entry, const LeafBuffer& leaves);

}  // namespace partax
