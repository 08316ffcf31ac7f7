// A mark by which a dictionary is known to hold what it held when it was marked, without a look into it.
#pragma once

#include "base/python_api.h"

namespace partax {

#if PY_VERSION_HEX >= 0x030C0000

// From Python 3.12 on CPython tells of each change of a dictionary that is watched, before it is made, and of its end:
// a mark is good as long as it has told nothing of any of those.
class DictionaryMark {
 public:
  // To be called once, when partax is imported.
  static void begin();

  // Of any object, which need not be a dictionary. `owner` is the one whose `__dict__` it is, and then the caller has
  // one more reference to it; else null.
  bool is_on(PyObject* object, PyObject* owner) const noexcept {
    (void)owner;
    return changes_ == changes && dict_ == object;
  }

  // Only those that stay are watched. `is_as_before`: its content is what it was where this was called last.
  void put(PyObject* dict, PyObject* owner, bool is_as_before) noexcept {
    (void)owner;
    if (dict_ != dict || !is_as_before) {
      dict_ = dict;
      changes_ = kNone;
      was_put_ = false;
      return;
    }
    if (was_put_ && !is_watched(dict) && lost_ < kMostLost) ++lost_;
    was_put_ = lost_ < kMostLost && watch(dict);
    changes_ = was_put_ ? changes : kNone;
  }
  // It is on nothing until it is put again.
  void forget() noexcept { changes_ = kNone; }

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  static constexpr std::uint8_t kMostLost = 4;

  static int told(PyDict_WatchEvent event, PyObject* dict, PyObject* key, PyObject* value) noexcept;
  static bool may_lie_in_object(PyObject* dict) noexcept;
  static bool watch(PyObject* dict) noexcept;
  static bool is_watched(PyObject* dict) noexcept {
    const auto* content = reinterpret_cast<PyDictObject*>(dict);
#if PY_VERSION_HEX >= 0x030E0000
    const std::uint64_t watchers = content->_ma_watcher_tag;
#else
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#endif
    const std::uint64_t watchers = content->ma_version_tag;
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
#endif
    return watcher >= 0 && (watchers >> watcher & 1) != 0;
  }

  static inline int watcher = -1;
  static inline std::uint64_t changes = 0;
  static inline bool tells_of_attributes = false;  // that lie in the object itself: Python 3.13.0 does not

  PyObject* dict_ = nullptr;  // its address: it may be gone
  std::uint64_t changes_ = kNone;
  bool was_put_ = false;   // on it, where it was put last
  std::uint8_t lost_ = 0;  // how often it was another one at the same address
};

#else

// In Python 3.11 a dictionary gets a new version with each change, which none has had before (PEP 509). But where the
// interpreter sets an attribute of an instance by itself, it lets go of the old value, which may run any code, before
// the new version. So a dictionary counts that is not the `__dict__` of anything, or of an object whose class has a
// `__setattr__`; and nobody else may hold it, since that may be such an object.
class DictionaryMark {
 public:
  static void begin() noexcept {}

  bool is_on(PyObject* object, PyObject* owner) const noexcept {
    return PyDict_CheckExact(object) && version_ == version(object) && is_timely(object, owner);
  }

  void put(PyObject* dict, PyObject* owner, bool is_as_before) noexcept {
    (void)is_as_before;
    if (is_timely(dict, owner)) version_ = version(dict);
  }
  void forget() noexcept { version_ = kNone; }

 private:
  static std::uint64_t version(PyObject* dict) noexcept {
    return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
  }
  static bool is_timely(PyObject* dict, PyObject* owner) noexcept {
    if (owner == nullptr) return Py_REFCNT(dict) == 1;
    return Py_REFCNT(dict) == 2 && Py_TYPE(owner)->tp_setattro != PyObject_GenericSetAttr;
  }

  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  std::uint64_t version_ = kNone;
};

#endif

}  // namespace partax
