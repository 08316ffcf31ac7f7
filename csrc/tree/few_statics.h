// Static values of one node that have to be compared, such as functions, by their index. They are borrowed.
#pragma once

#include "base/python_api.h"

namespace partax {

struct FewStatics {
  static constexpr std::size_t kMost = 8;
  std::size_t count = 0, indices[kMost];
  PyObject* values[kMost];

  // False where there are too many.
  bool add(std::size_t index, PyObject* value) noexcept {
    if (count == kMost) return false;
    indices[count] = index;
    values[count++] = value;
    return true;
  }
};

}  // namespace partax
