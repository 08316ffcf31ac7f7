// Which cache a wrapper uses: that of all callables like its own.
#pragma once

#include "call/jit_function.h"

namespace partax {

// The cache of a wrapper, found or made; it stays whatever other threads do to the wrapper meanwhile.
Ref ready_cache(JitFunction& jit);
// The same, but another one if the callable has changed since the cache was found.
Ref renewed_cache(JitFunction& jit);
// No longer used by one of those who use it.
void release(SeenCallable* seen) noexcept;

}  // namespace partax
