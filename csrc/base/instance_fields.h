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
  // Fills `values` (as long as both name lists). One pass over the dictionary where its order is one seen lately.
  void read(const TypeInfo& info, PyObject** values) const {
    const auto put = [values](std::size_t field, PyObject* value) {
      values[field] = value;
      return true;
    };
    if (!visit_in_order(info, put)) read_by_name(info, values);
  }
  // Calls `visit(field, value)` for all fields, in the order of the dictionary, until it gives false; it must not run
  // Python. False then, and where the dictionary has another order than those seen lately.
  template <typename Visit>
  bool visit_in_order(const TypeInfo& info, Visit&& visit) const {
    if (visit_as(info.orders[0], visit)) return true;
    if (!visit_as(info.orders[1], visit)) return false;
    std::swap(info.orders[0], info.orders[1]);
    return true;
  }

 private:
  void read_by_name(const TypeInfo& info, PyObject** values) const;

  template <typename Visit>
  bool visit_as(const std::vector<PlacedField>& order, Visit&& visit) const {
    PyObject *dict = dict_.get(), *key, *value;
    if (order.empty() || PyDict_GET_SIZE(dict) != static_cast<Py_ssize_t>(order.size())) return false;
    Py_ssize_t position = 0;
    for (const PlacedField& field : order) {
      if (PyDict_Next(dict, &position, &key, &value) == 0 || key != field.name || !visit(field.index, value))
        return false;
    }
    return true;
  }

  Ref dict_;
};

}  // namespace partax
