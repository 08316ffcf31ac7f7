#include "base/stack_room.h"

#include <algorithm>

#if defined(_WIN32)
#define NOMINMAX  // or `std::min` is a macro
#include <windows.h>
#else
#include <pthread.h>
#endif

namespace partax {
namespace {

// A whole walk of 2000 levels takes less, and so does what Python and jax do between two walks.
constexpr std::uintptr_t kMostReserve = std::uintptr_t{1} << 20;

StackReserve measure_reserve() noexcept {
  std::uintptr_t lowest = 0;
  std::uintptr_t size = 0;
#if defined(_WIN32)
  ULONG_PTR low = 0;
  ULONG_PTR high = 0;
  GetCurrentThreadStackLimits(&low, &high);
  lowest = low;
  size = high - low;
#elif defined(__APPLE__)
  size = pthread_get_stacksize_np(pthread_self());
  lowest = reinterpret_cast<std::uintptr_t>(pthread_get_stackaddr_np(pthread_self())) - size;
#elif defined(__linux__)
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return {};
  void* start = nullptr;
  std::size_t bytes = 0;
  if (pthread_attr_getstack(&attributes, &start, &bytes) == 0) {
    lowest = reinterpret_cast<std::uintptr_t>(start);
    size = bytes;
  }
  pthread_attr_destroy(&attributes);
#endif
  return {lowest, std::min(size / 4, kMostReserve)};
}

}  // namespace

const StackReserve& stack_reserve() noexcept {
  static thread_local const StackReserve reserve = measure_reserve();
  return reserve;
}

}  // namespace partax
