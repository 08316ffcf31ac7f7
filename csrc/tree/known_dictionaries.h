// What the dictionaries of a tree held when a spec's static values were found in them, by identity: the same as long as
// their version stays. CPython gives a dictionary a new version with each change, which none has had before (PEP 509).
//
// Where it sets an attribute of an instance by itself, it lets go of the old value, which may run any code, before the
// new version. So a dictionary counts that is not the `__dict__` of anything, or of an object whose class has a
// `__setattr__`; and nobody else may hold it, since that may be such an object.
#pragma once

#include <vector>

#include "base/python_api.h"

namespace partax {

class KnownDictionaries {
 public:
  // Whether this is the dictionary remembered for a node, unchanged. `owner` is the object whose `__dict__` it is, and
  // then the caller has one more reference to it; else null.
  bool hold(std::size_t node, PyObject* dict, PyObject* owner) const noexcept {
    return !known_.empty() && known_[node].version == version(dict) && is_timely(dict, owner);
  }
  // The children that such a one has, in the order of the spec. Borrowed from it, so good until any Python runs.
  PyObject* const* children(std::size_t node) const noexcept { return children_.data() + known_[node].first_child; }

  // Of one node always as many.
  void remember(std::size_t node, std::size_t num_nodes, PyObject* dict, PyObject* owner, PyObject* const* children,
                std::size_t count) {
    if (version(dict) == kNone || !is_timely(dict, owner)) return;
    if (known_.empty()) known_.resize(num_nodes);
    Known& known = known_[node];
    if (known.version == kUnknown) {
      const std::size_t first = children_.size();
      children_.resize(first + count);
      known.first_child = static_cast<std::uint32_t>(first);
    }
    for (std::size_t i = 0; i < count; ++i) children_[known.first_child + i] = children[i];
    known.version = version(dict);
  }

 private:
  static constexpr std::uint64_t kNone = 0, kUnknown = ~std::uint64_t{0};
  struct Known {
    std::uint64_t version = kUnknown;
    std::uint32_t first_child = 0;
  };

  static bool is_timely(PyObject* dict, PyObject* owner) noexcept {
    if (owner == nullptr) return Py_REFCNT(dict) == 1;
    return Py_REFCNT(dict) == 2 && Py_TYPE(owner)->tp_setattro != PyObject_GenericSetAttr;
  }

  static std::uint64_t version(PyObject* dict) noexcept {
#if PY_VERSION_HEX >= 0x030E0000
    (void)dict;
    return kNone;
#else
    const auto* content = reinterpret_cast<PyDictObject*>(dict);
#if PY_VERSION_HEX >= 0x030D0000
    // One whose values lie in an object is changed there without a new version.
    if (content->ma_values != nullptr) return kNone;
#endif
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#endif
    return content->ma_version_tag;
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
#endif
  }

  std::vector<Known> known_;  // by node; empty while none is known
  std::vector<PyObject*> children_;
};

}  // namespace partax
