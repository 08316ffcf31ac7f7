// The children of a node that stand in a row in memory.
#pragma once

#include "base/python_api.h"

namespace partax {

// Children in a row that nothing moves, and that are held as long as they are looked at.
struct FixedItems {
  static constexpr bool kHolds = true;
  PyObject** items;
  PyObject* at(std::size_t i) const { return items[i]; }
  PyObject** block(std::size_t i, std::size_t) const { return items + i; }
};

// Children of a list, which user code may shrink meanwhile.
struct ListItems {
  static constexpr bool kHolds = false;
  PyObject* list;
  PyObject* at(std::size_t i) const {
    return static_cast<Py_ssize_t>(i) < PyList_GET_SIZE(list) ? PyList_GET_ITEM(list, i) : nullptr;
  }
  PyObject** block(std::size_t i, std::size_t count) const {
    return static_cast<Py_ssize_t>(i + count) <= PyList_GET_SIZE(list)
               ? reinterpret_cast<PyListObject*>(list)->ob_item + i
               : nullptr;
  }
};

}  // namespace partax
