// What is said of a call that jax refuses.
#pragma once

#include "call/call_frame.h"

namespace partax {

// A target may fail on an argument before it traces. Then Python may put an exception with the argument's path in the
// place of the one that is set. The frame must be the innermost.
void explain_failure(const CallFrame& frame);

}  // namespace partax
