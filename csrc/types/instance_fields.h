// Reading the fields of attribute families (Equinox modules, dataclasses, declared classes) past user overrides, and
// calls of the functions that a class is registered with.
#pragma once

#include "base/held_values.h"
#include "base/python_api.h"
#include "types/type_table.h"

namespace partax {

// The values of an instance's fields: children first, then statics; null where absent.
class FieldReader {
 public:
  FieldReader(PyObject* object, const TypeInfo& info)
      : object_(object),
        dict_(info.offsets.empty() || info.type->tp_dictoffset < 0
                  ? Ref::checked(PyObject_GenericGetDict(object, nullptr))
                  : Ref()) {}

  // Whether an instance with all of them has only these attributes.
  bool is_exact(const TypeInfo& info) const {
    const std::size_t total = info.child_names.size() + info.static_names.size();
    return info.offsets.empty() ? PyDict_GET_SIZE(dict_.get()) == static_cast<Py_ssize_t>(total) : has_no_dict_items();
  }
  // Null if the fields are in slots, without a dictionary or with only a pointer to one.
  PyObject* dict() const noexcept { return dict_.get(); }
  // Where they are: what a Reading of them is of.
  PyObject* place(const TypeInfo& info) const noexcept { return info.offsets.empty() ? dict_.get() : object_; }
  // Fills `values` (as long as both name lists) and holds them. Whether these are all attributes of the instance.
  bool read(const TypeInfo& info, HeldValues& values) const {
    const Reading reading(place(info));
    PyObject** const fields = values.to_fill();
    const auto put = [fields](std::size_t field, PyObject* value) {
      fields[field] = value;
      return true;
    };
    if (!info.offsets.empty()) {
      for (std::size_t i = 0; i < info.offsets.size(); ++i) fields[i] = in_slot(info.offsets[i]);
    } else if (!visit_in_order(info, put)) {
      read_by_name(info, fields);
    }
    values.hold();
    for (std::size_t i = 0; i < info.child_names.size() + info.static_names.size(); ++i) {
      if (fields[i] == nullptr) return false;
    }
    return is_exact(info);
  }
  // Calls `visit(field, value)` for all fields, in the order of the dictionary, until it gives false; it must not run
  // Python, nor does anybody who calls this before the values are owned. False then, and where the dictionary has
  // another order than those seen lately.
  template <typename Visit>
  bool visit_in_order(const TypeInfo& info, Visit&& visit) const {
    if (!info.offsets.empty()) return visit_slots(info, visit);
    if (visit_as(info.orders[0], visit)) return true;
    if (!visit_as(info.orders[1], visit)) return false;
    std::swap(info.orders[0], info.orders[1]);
    return true;
  }

 private:
  bool has_no_dict_items() const;

  PyObject* in_slot(Py_ssize_t offset) const noexcept {
    return *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object_) + offset);
  }
  template <typename Visit>
  bool visit_slots(const TypeInfo& info, Visit&& visit) const {
    for (std::size_t i = 0; i < info.offsets.size(); ++i) {
      PyObject* value = in_slot(info.offsets[i]);
      if (value == nullptr || !visit(i, value)) return false;
    }
    return has_no_dict_items();
  }
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

  PyObject* object_;
  Ref dict_;
};

// Whether an instance of a kDeclared type has exactly the declared fields; else its registered functions are called.
bool is_as_declared(const TypeInfo& info, PyObject* object);

// The children and the aux data of a node that is flattened by a registered function. Errors are WalkErrors.
struct OneLevel {
  Ref children;  // a tuple or list
  Ref aux;
};
OneLevel flatten_registered(PyObject* node, const TypeInfo& info);

}  // namespace partax
