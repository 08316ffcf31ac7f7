#include "classes/instance_fields.h"

#include <algorithm>

namespace partax {

std::vector<std::uint32_t> places_of(const TypeInfo& info, PyObject* names) {
  std::vector<std::uint32_t> places;
  for (PyObject* name : Items(names)) {
    std::uint32_t place = 0;
    for (const std::vector<Ref>* fields : {&info.child_names, &info.static_names}) {
      for (const Ref& field : *fields) {
        if (PyUnicode_Compare(field.get(), name) == 0) places.push_back(place);
        ++place;
      }
    }
  }
  return places;
}

bool FieldReader::has_no_dict_items() const {
  const Py_ssize_t offset = Py_TYPE(object_)->tp_dictoffset;
  // Above 0 it is the place of a pointer, null as long as nothing has been set.
  PyObject* const dict = offset > 0 ? in_slot(offset) : dict_.get();
  return dict == nullptr || PyDict_GET_SIZE(dict) == 0;
}

bool is_as_declared(const TypeInfo& info, PyObject* object) {
  if (info.kind != Kind::kDeclared || info.agreement == TypeInfo::kDiffers) return false;
  const FieldReader reader(object, info);
  HeldValues values(info.child_names.size() + info.static_names.size());
  return reader.read(info, values);
}

void FieldReader::read_by_name(const TypeInfo& info, PyObject** values) const {
  const std::size_t children = info.child_names.size();
  const std::size_t total = children + info.static_names.size();
  const auto name = [&](std::size_t i) {
    return i < children ? info.child_names[i].get() : info.static_names[i - children].get();
  };
  std::fill(values, values + total, nullptr);
  // Of all fields and nothing else the order is remembered for the next instance.
  std::vector<PlacedField> order;
  const bool may_be_all = PyDict_GET_SIZE(dict_.get()) == static_cast<Py_ssize_t>(total);
  if (may_be_all) order.reserve(total);
  PyObject *key, *value;
  Py_ssize_t position = 0;
  // Not by look-ups, which may run the == of a key of the user's, while the values are borrowed.
  while (PyDict_Next(dict_.get(), &position, &key, &value)) {
    if (!PyUnicode_CheckExact(key)) continue;
    for (std::size_t i = 0; i < total; ++i) {
      if (values[i] != nullptr || (key != name(i) && PyUnicode_Compare(key, name(i)) != 0)) continue;
      values[i] = value;
      if (may_be_all && key == name(i)) order.push_back({key, i});
      break;
    }
  }
  if (!may_be_all || order.size() != total) return;
  std::swap(info.orders[0], info.orders[1]);
  std::swap(info.orders[0], order);
}

}  // namespace partax
