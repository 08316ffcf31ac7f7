// What a call does, from the arguments to the result.
#pragma once

#include "call/jit_function.h"

namespace partax {

// Calls the wrapper, which the caller must hold as it must the arguments. A hit runs no Python function of partax, but
// where a static value of the result was built around one that came in; it allocates nothing per leaf.
Ref run_call(JitFunction& jit, PyObject* const* args, std::size_t num_args, PyObject* keyword_names);

}  // namespace partax
