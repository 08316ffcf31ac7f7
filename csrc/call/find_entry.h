// How the entry of a call is found: beside the keys that were used last, else by its hash.
#pragma once

#include "call/call_frame.h"
#include "tree/leaf_buffer.h"

namespace partax {

// The entry of the call's static part, and its dynamic leaves. A new one has its target made; `is_new` tells. The frame
// must be the innermost. Threads that miss at once get one entry, and one function for jax to trace.
EntryPtr find_entry(CallFrame& frame, LeafBuffer& leaves, bool& is_new);

// Keeps the nodes of the call that some trace gives back as they came, where its values were read before that trace.
// Whether an entry that has matched is for the call: see Entry.
bool is_for(Entry& entry, PyObject* callable, const MadeAnew& made_anew, const LeafBuffer& leaves);
void keep_nodes(const CallFrame& frame, const Entry& entry, LeafBuffer& leaves);

}  // namespace partax
