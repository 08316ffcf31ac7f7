#include "classes/registered_functions.h"

#include "base/error_path.h"
#include "base/owned_reads.h"
#include "base/python_hooks.h"
#include "classes/instance_fields.h"
#include "classes/type_lookup.h"

namespace partax {
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
  if (info.agreement != TypeInfo::kUntold) return info.agreement == TypeInfo::kAgrees;
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
