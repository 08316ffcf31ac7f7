// Which dictionaries hold just the static values that a spec expects: those found to do so, as long as their version
// stays. CPython gives a dictionary a new version with each change, which no dictionary has had before (PEP 509).
#pragma once

#include <vector>

#include "base/python_api.h"

namespace partax {

class SameDictionaries {
 public:
  // Whether this is the dictionary remembered for a node, unchanged.
  bool hold(std::size_t node, PyObject* dict) const noexcept {
    return !versions_.empty() && versions_[node] == version(dict);
  }
  void remember(std::size_t node, std::size_t num_nodes, PyObject* dict) {
    if (version(dict) == kNone) return;
    if (versions_.empty()) versions_.resize(num_nodes, kUnknown);
    versions_[node] = version(dict);
  }

 private:
  static constexpr std::uint64_t kNone = 0, kUnknown = ~std::uint64_t{0};

  static std::uint64_t version(PyObject* dict) noexcept {
#if PY_VERSION_HEX >= 0x030E0000
    (void)dict;
    return kNone;
#else
    // One whose values lie in an object (from 3.13 on) is changed there without a new version.
    const auto* content = reinterpret_cast<PyDictObject*>(dict);
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#endif
    return content->ma_values == nullptr ? content->ma_version_tag : kNone;
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
#endif
  }

  std::vector<std::uint64_t> versions_;  // by node; empty while none is known
};

}  // namespace partax
