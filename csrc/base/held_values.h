// The values of one node, all read at one instant, and kept alive for what may run user code.
#pragma once

#include <algorithm>

#include "base/python_api.h"

namespace partax {

class HeldValues {
 public:
  explicit HeldValues(std::size_t size) : size_(size) {
    if (size <= kInline) return;
    heap_.reset(new PyObject*[size]);
    values_ = heap_.get();
  }
  HeldValues& operator=(HeldValues&&) = delete;  // nor a copy
  ~HeldValues() {
    for (std::size_t i = 0; i < held_; ++i) Py_XDECREF(values_[i]);
  }

  // To be filled with borrowed objects or null, and held before any Python runs, or other threads do.
  PyObject** to_fill() noexcept { return values_; }
  void hold() noexcept { hold_first(size_); }
  void hold_first(std::size_t count) noexcept {
    for (; held_ < count; ++held_) Py_XINCREF(values_[held_]);
  }
  // Where nothing runs that could let go of them with a GIL.
  void hold_if_free_threaded(std::size_t count) noexcept {
    if (kFreeThreaded) hold_first(count);
  }
  // Takes the items of a list or tuple; false where these are not as many.
  bool hold_items_of(PyObject* sequence) noexcept {
    const Reading reading(sequence);
    if (PySequence_Fast_GET_SIZE(sequence) != static_cast<Py_ssize_t>(size_)) return false;
    std::copy_n(PySequence_Fast_ITEMS(sequence), size_, values_);
    hold();
    return true;
  }
  // To be filled with owned objects, at once or by `append`.
  PyObject** to_own() noexcept {
    std::fill(values_, values_ + size_, nullptr);
    held_ = size_;
    return values_;
  }
  void append(Ref value) noexcept { values_[held_++] = value.release(); }
  Ref release(std::size_t i) noexcept { return Ref::steal(std::exchange(values_[i], nullptr)); }
  PyObject* operator[](std::size_t i) const noexcept { return values_[i]; }

 private:
  static constexpr std::size_t kInline = 24;

  PyObject* inline_[kInline];
  std::unique_ptr<PyObject*[]> heap_;
  PyObject** values_ = inline_;
  std::size_t size_;
  std::size_t held_ = 0;
};

// No garbage collection starts in here, as it may with any new object in Python 3.11; and then it runs any code. From
// 3.12 on it starts between two instructions of Python alone. Only around what runs no code of users and keeps the
// GIL: so no other code can see the switch meanwhile, nor set it.
#if PY_VERSION_HEX < 0x030C0000

class CollectionPause {
 public:
  CollectionPause() noexcept : enabled_(PyGC_Disable() != 0) {}
  CollectionPause& operator=(CollectionPause&&) = delete;  // nor a copy
  ~CollectionPause() {
    if (enabled_) PyGC_Enable();
  }

 private:
  bool enabled_;
};

#else

class [[maybe_unused]] CollectionPause {};

#endif

}  // namespace partax
