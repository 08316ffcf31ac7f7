// A dictionary that holds what it held when it was read, without another look: from Python 3.12 on CPython reports
// each change of one that is watched, before it, and its end.
#pragma once

#include "base/python_api.h"

namespace partax {

#if PY_VERSION_HEX >= 0x030C0000 && !defined(Py_GIL_DISABLED)

class WatchedDict {
 public:
  bool is_unchanged(PyObject* dict) const noexcept { return dict_ == dict && changes_ == changes; }
  // To be called after a reading. One that is read twice in a row is watched: most that come once go soon. Whether it
  // is watched now.
  bool set(PyObject* dict) noexcept {
    static const int watcher = PyDict_AddWatcher(count);
    const bool is_watched =
        std::exchange(dict_, dict) == dict && !may_be_in_object(dict) && PyDict_Watch(watcher, dict) == 0;
    if (!is_watched) PyErr_Clear();  // others may have all the watchers that there are
    changes_ = is_watched ? changes : 0;
    return is_watched;
  }

 private:
  // Whether its values may be in the object whose attributes they are: Python 3.13.0 reports no changes of these.
  static bool may_be_in_object(PyObject* dict) noexcept {
    return reinterpret_cast<PyDictObject*>(dict)->ma_values != nullptr;
  }
  static int count(PyDict_WatchEvent, PyObject*, PyObject*, PyObject*) noexcept { return ++changes, 0; }
  static inline std::uint64_t changes = 1;  // of all that are watched

  PyObject* dict_ = nullptr;  // its address: it may be gone
  std::uint64_t changes_ = 0;
};

#else

struct WatchedDict {
  static bool is_unchanged(PyObject*) noexcept { return false; }
  static bool set(PyObject*) noexcept { return false; }
};

#endif

}  // namespace partax
