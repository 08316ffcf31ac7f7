// Whether the thread's C stack has room for another level of recursion. Counting levels alone does not tell: user code
// inside a walk may start another one.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef _MSC_VER
#include <intrin.h>
#endif

namespace partax {

// The part of the thread's stack that is kept for user code, the interpreter and jax.
struct StackReserve {
  std::uintptr_t lowest = 0;
  std::uintptr_t size = 0;

  // On a stack that is not the thread's own, nothing is known, and this holds. Inline, so that it is the caller's
  // frame.
  bool is_free() const noexcept {
#ifdef _MSC_VER
    const auto here = reinterpret_cast<std::uintptr_t>(_AddressOfReturnAddress());
#else
    const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
#endif
    return here - lowest >= size;
  }
};

const StackReserve& stack_reserve() noexcept;

}  // namespace partax
