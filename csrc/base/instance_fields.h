// Reading and writing the fields of attribute families (Equinox modules, registered dataclasses) past user overrides.
#pragma once

#include "base/python_api.h"
#include "base/type_table.h"

namespace partax {

// The values of an instance's fields: children first, then statics; null where absent. Borrowed from `dict`.
class FieldReader {
 public:
  explicit FieldReader(PyObject* object) : dict_(Ref::checked(PyObject_GenericGetDict(object, nullptr))) {}

  PyObject* dict() const noexcept { return dict_.get(); }
  // Fills `values` (as long as both name lists). One pass over the dictionary where its order is the one seen last.
  void read(const TypeInfo& info, PyObject** values) const {
    const std::size_t count = info.order.size();
    if (count != 0 && PyDict_GET_SIZE(dict_.get()) == static_cast<Py_ssize_t>(count)) {
      PyObject* const* names = info.order.data();
      PyObject *key, *value;
      Py_ssize_t position = 0;
      std::size_t i = 0;
      while (i < count && PyDict_Next(dict_.get(), &position, &key, &value) != 0 && key == names[i]) {
        values[info.order_to[i++]] = value;
      }
      if (i == count) return;
    }
    read_by_name(info, values);
  }

 private:
  void read_by_name(const TypeInfo& info, PyObject** values) const;

  Ref dict_;
};

}  // namespace partax
