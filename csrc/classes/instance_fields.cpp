#include "classes/instance_fields.h"

#include <algorithm>

#include "base/error_path.h"
#include "base/owned_reads.h"
#include "base/python_hooks.h"
#include "classes/type_lookup.h"

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

namespace {

std::string flattening(PyObject* node) { return "flattening the `" + type_name(node) + "` at"; }

// Whether these may be the children and the aux data of a node.
bool is_pair(const Ref& pair) {
  if (!pair || !PyTuple_Check(pair.get()) || PyTuple_GET_SIZE(pair.get()) != 2) return false;
  PyObject* children = PyTuple_GET_ITEM(pair.get(), 0);
  return Py_TYPE(children)->tp_iter != nullptr || PySequence_Check(children) != 0;
}

}  // namespace

OneLevel flatten_registered(PyObject* node, const TypeInfo& info) {
  const Ref function = info.flatten_function;
  const auto given = [&](PyObject* result) {
    if (result == nullptr) throw WalkError::from_user_code(flattening(node));
    return Ref::steal(result);
  };
  Ref pair;
  // jax itself, which says what is wrong, is asked where the function gives something else.
  for (PyObject* asked : {function.get(), hooks().flatten_one_level.get()}) {
    if (asked == nullptr || is_pair(pair)) continue;
    pair = given(PyObject_CallOneArg(asked, node));
  }
  if (!is_pair(pair)) {
    throw WalkError::diagnosed(PyExc_TypeError,
                               "jax does not know `" + type_name(node) + "` as a pytree node any more");
  }
  OneLevel result;
  result.children = given(PySequence_Fast(PyTuple_GET_ITEM(pair.get(), 0), "children must be a sequence"));
  result.aux = Ref::borrow(PyTuple_GET_ITEM(pair.get(), 1));
  return result;
}

bool agrees(const TypeInfo& info, PyObject* object) {
  if (info.agreement != TypeInfo::kUnknown) return info.agreement == TypeInfo::kAgrees;
  const Ref answer = reading([&] { return python::order_of(object); }, flattening(object).c_str());
  if (PyUnicode_Check(answer.get())) throw WalkError::diagnosed(PyExc_TypeError, exact_text(answer.get()));
  if (answer.get() != Py_None) info.set_order = places_of(info, answer.get());
  info.agreement = answer.get() != Py_None ? TypeInfo::kAgrees : TypeInfo::kDiffers;
  return info.agreement == TypeInfo::kAgrees;
}

namespace {

// How many fields the tuples have that a class makes without doing anything else: if its __new__ is what
// collections.namedtuple has written, a function that sees tuple's __new__ and no built-in name.
std::optional<std::size_t> fields_of_plain(PyTypeObject* type) {
  static Name builtins_name("__builtins__"), tuple_new_name("_tuple_new");
  if (Py_TYPE(type) != &PyType_Type || type->tp_init != PyBaseObject_Type.tp_init) return {};
  const Ref make = attribute(reinterpret_cast<PyObject*>(type), "__new__");
  if (!PyFunction_Check(make.get())) return {};
  PyObject* names = PyFunction_GET_GLOBALS(make.get());
  const Ref builtins = dict_item(names, builtins_name.get()), tuple_new = dict_item(names, tuple_new_name.get());
  if (!builtins || !PyDict_CheckExact(builtins.get()) || PyDict_GET_SIZE(builtins.get()) != 0) return {};
  if (!tuple_new || !PyCFunction_CheckExact(tuple_new.get()) ||
      PyCFunction_GET_SELF(tuple_new.get()) != reinterpret_cast<PyObject*>(&PyTuple_Type)) {
    return {};
  }
  const Ref code = code_of(make.get());
  return static_cast<std::size_t>(reinterpret_cast<PyCodeObject*>(code.get())->co_argcount) - 1;
}

}  // namespace

bool is_plain_named_tuple(const TypeInfo& info, std::size_t arity) {
  const unsigned version = type_version(info.type);
  if (version == 0 || version != info.plain_version) {
    info.plain_fields = fields_of_plain(info.type);
    info.plain_version = version;
  }
  return info.plain_fields == arity;
}

const std::vector<std::uint32_t>& order_of_call(const TypeInfo& info) {
  static const std::vector<std::uint32_t> none;
  PyTypeObject* type = info.type;
  if (Py_TYPE(type)->tp_call != PyType_Type.tp_call) return none;
  const unsigned version = type_version(type);
  if (version != 0 && version == info.order_version) return info.set_order;
  if (version == 0) return none;
  const Ref names = python::order_of_call(reinterpret_cast<PyObject*>(type));
  info.set_order = places_of(info, names.get());
  info.order_version = version;
  return info.set_order;
}

bool is_still_declared(const TypeInfo& info) {
  const unsigned version = type_version(info.type);
  if (version != 0 && version == info.order_version) return true;
  auto* type = reinterpret_cast<PyObject*>(info.type);
  if (python::is_declared(type).get() != Py_True) return false;
  info.order_version = version;
  return true;
}

}  // namespace partax
