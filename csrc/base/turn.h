// Whose turn it is to run the code of csrc/, where Python has no GIL; with a GIL all of this is nothing.
//
// As with the GIL, one thread at a time: a `Turn` is taken wherever Python calls us, is let go by CPython itself
// wherever the thread waits, and is left by an `Away` around what is not ours. A part of python_api.h.
#pragma once

#include <cstdint>

namespace partax {

#ifdef Py_GIL_DISABLED

inline constexpr bool kFreeThreaded = true;
inline PyObject turn_object{};  // a place for its mutex

// The thread's innermost critical section, if that is a turn which it has now; else null.
inline PyCriticalSection* current_turn() noexcept {
  constexpr std::uintptr_t kInactiveOrOfTwo = 3;
  const std::uintptr_t innermost = PyThreadState_GetUnchecked()->critical_section;
  if (innermost == 0 || (innermost & kInactiveOrOfTwo) != 0) return nullptr;
  auto* const section = reinterpret_cast<PyCriticalSection*>(innermost);
  return section->_cs_mutex == &turn_object.ob_mutex ? section : nullptr;
}

// A destructor takes its object from the collector first: taking a turn may let a collection run, which would take it
// for garbage once more.
class Turn {
 public:
  Turn() noexcept : is_first_(current_turn() == nullptr) {
    if (is_first_) PyCriticalSection_Begin(&section_, &turn_object);
  }
  Turn& operator=(Turn&&) = delete;  // nor a copy
  ~Turn() {
    if (is_first_) PyCriticalSection_End(&section_);
  }

 private:
  PyCriticalSection section_;
  bool is_first_;
};

// Around a program, the user's function and Python of ours: other threads have their turn meanwhile.
class Away {
 public:
  Away() noexcept : section_(current_turn()) {
    if (section_ != nullptr) PyCriticalSection_End(section_);
  }
  Away& operator=(Away&&) = delete;  // nor a copy
  ~Away() {
    if (section_ != nullptr) PyCriticalSection_Begin(section_, &turn_object);
  }

 private:
  PyCriticalSection* section_;
};

// While an object of somebody else's is read: no other thread changes it, nor has the turn. What runs in here must
// neither wait nor begin another one, and what is found must be owned before it ends. So it need not be a critical
// section, but where another thread has the object: waiting in one lets go of the turn, which ending it takes again.
class Reading {
 public:
  explicit Reading(PyObject* object) noexcept : mutex_(object->ob_mutex) {
    while (!try_lock()) {
      PyCriticalSection section;
      PyCriticalSection_Begin(&section, object);
      PyCriticalSection_End(&section);
    }
  }
  Reading& operator=(Reading&&) = delete;  // nor a copy
  ~Reading() { PyMutex_Unlock(&mutex_); }

 private:
  bool try_lock() noexcept {
    std::uint8_t bits = _Py_UNLOCKED;
    return _Py_atomic_compare_exchange_uint8(&mutex_._bits, &bits, _Py_LOCKED) != 0;
  }

  PyMutex& mutex_;
};

#else

inline constexpr bool kFreeThreaded = false;

class [[maybe_unused]] Turn {};
class [[maybe_unused]] Away {};
class [[maybe_unused]] Reading {
 public:
  explicit Reading(PyObject*) noexcept {}
};

#endif

}  // namespace partax
