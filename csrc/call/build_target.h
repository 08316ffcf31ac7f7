// The jax.jit target of a new entry.
#pragma once

#include "call/call_frame.h"
#include "call/entry_table.h"
#include "tree/leaf_buffer.h"

namespace partax {

// Whether Python is asked for stored programs (partax._store); set by the switch.
extern bool programs_are_stored;

// Python makes the jax.jit target, and may trace it to know which arguments it must not donate. Tells whether it did,
// or another thread was first. The caller must keep `entry`; from the last look at what other traces forward until the
// target is set no Python may run.
bool build_target(CallFrame& frame, Entry& entry, const LeafBuffer& leaves);

}  // namespace partax
