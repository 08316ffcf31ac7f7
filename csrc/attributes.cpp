#include "attributes.h"

namespace partax {

void FieldReader::read_by_name(const TypeInfo& info, PyObject** values) const {
  const std::size_t children = info.child_names.size();
  const std::size_t total = children + info.static_names.size();
  const auto name = [&](std::size_t i) {
    return i < children ? info.child_names[i].get() : info.static_names[i - children].get();
  };
  bool complete = PyDict_GET_SIZE(dict_.get()) == static_cast<Py_ssize_t>(total);
  for (std::size_t i = 0; i < total; ++i) {
    values[i] = PyDict_GetItemWithError(dict_.get(), name(i));
    if (values[i] == nullptr) {
      if (PyErr_Occurred() != nullptr) throw PythonError{};
      complete = false;
    }
  }
  if (!complete) return;
  // All fields and nothing else: remember the order for the next instance.
  info.order.clear();
  info.order_to.clear();
  info.order.reserve(total);  // both, before either is filled
  info.order_to.reserve(total);
  PyObject *key, *value;
  Py_ssize_t position = 0;
  while (PyDict_Next(dict_.get(), &position, &key, &value)) {
    for (std::size_t i = 0; i < total; ++i) {
      if (key != name(i)) continue;
      info.order.push_back(key);
      info.order_to.push_back(static_cast<std::uint16_t>(i));
      break;
    }
  }
  if (info.order.size() != total) {
    info.order.clear();
    info.order_to.clear();
  }
}

}  // namespace partax
