#include "types/instance_fields.h"

#include <algorithm>

#include "base/error_path.h"
#include "base/owned_reads.h"
#include "base/python_hooks.h"

namespace partax {

bool FieldReader::has_no_dict_items() const {
  const Py_ssize_t offset = Py_TYPE(object_)->tp_dictoffset;
  // Above 0 it is the place of a pointer, null as long as nothing has been set.
  PyObject* const dict = offset > 0 ? in_slot(offset) : dict_.get();
  return dict == nullptr || PyDict_GET_SIZE(dict) == 0;
}

bool is_as_declared(const TypeInfo& info, PyObject* object) {
  if (info.kind != Kind::kDeclared) return false;
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

namespace {

// Whether these may be the children and the aux data of a node.
bool is_pair(const Ref& pair) {
  if (!pair || !PyTuple_Check(pair.get()) || PyTuple_GET_SIZE(pair.get()) != 2) return false;
  PyObject* children = PyTuple_GET_ITEM(pair.get(), 0);
  return Py_TYPE(children)->tp_iter != nullptr || PySequence_Check(children) != 0;
}

}  // namespace

OneLevel flatten_registered(PyObject* node, const TypeInfo& info) {
  const auto checked = [&](PyObject* result) {
    if (result == nullptr) throw WalkError::from_user_code("flattening the `" + type_name(node) + "` at");
    return Ref::steal(result);
  };
  Ref pair = checked(PyObject_CallOneArg(Ref(info.functions.flatten).get(), node));
  // jax's error is raised if the function returns something else.
  if (!is_pair(pair)) pair = checked(PyObject_CallOneArg(hooks.flatten_one_level.get(), node));
  if (!is_pair(pair)) throw WalkError::diagnosed(PyExc_TypeError, "jax does not flatten `" + type_name(node) + "`");
  return {checked(PySequence_Fast(PyTuple_GET_ITEM(pair.get(), 0), "children must be a sequence")),
          Ref::borrow(PyTuple_GET_ITEM(pair.get(), 1))};
}

}  // namespace partax
