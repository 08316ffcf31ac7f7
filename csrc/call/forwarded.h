// The arrays that a call gives back as they came. They do not go through jax, so that they are there is checked here.
#pragma once

#include "base/python_api.h"
#include "call/entry_table.h"
#include "tree/leaf_buffer.h"

namespace partax {

// Whether any of the leaves is an array of jax that has been deleted or given away.
bool are_any_deleted(const LeafBuffer& leaves);

// Before the program runs, where it donates: whether an array that the call may give back is deleted already, or is
// donated as another argument.
bool may_lose_forwarded(const Entry& entry, const LeafBuffer& leaves);
// Then raises jax's error, if this very call would do so; nothing has been given away. For a trace of another shape the
// frame of the call must be there.
void refuse_lost_forwarded(const Entry& entry, const LeafBuffer& leaves);

// After it: raises jax's error if an array that the call gives back is deleted. `were_there` says that they had been
// checked before.
void check_forwarded(const Entry& entry, PyObject* returned, const LeafBuffer& leaves, bool were_there);

}  // namespace partax
