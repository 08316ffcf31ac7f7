// Which nodes of a result are nodes of an argument, to be given back as they came.
#pragma once

#include "call/traced_result.h"

namespace partax {

// Finds the largest nodes of the output's spec that an argument has too: of the same types, with the same static
// values, and with its arrays, forwarded, in the same order. Only of types whose instances never change, at any depth.
// `arguments` is what was flattened for the trace. The output's static values must still be those that the body has
// returned.
void find_passthroughs(TraceOutput& output, const TreeSpec& arguments);

}  // namespace partax
