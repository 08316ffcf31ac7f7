#include "statics/static_form.h"

#include "base/python_hooks.h"
#include "base/stack_room.h"
#include "statics/callable_parts.h"

namespace partax {
namespace {

thread_local int static_depth = 0;

// The built-in type whose content an instance has, or null. It is among the bases that the layout comes from.
PyTypeObject* content_type(PyObject* value) noexcept {
  PyTypeObject* const bases[] = {&PyTuple_Type,     &PyList_Type,    &PyDict_Type,      &PySet_Type,
                                 &PyFrozenSet_Type, &PyLong_Type,    &PyByteArray_Type, &PyFloat_Type,
                                 &PyComplex_Type,   &PyUnicode_Type, &PyBytes_Type};
  for (PyTypeObject* type = Py_TYPE(value); type != nullptr; type = type->tp_base) {
    for (PyTypeObject* base : bases) {
      if (type == base) return base;
    }
  }
  return nullptr;
}

Form form_of_content(PyTypeObject* base) noexcept {
  if (base == &PyTuple_Type) return Form::kTuple;
  if (base == &PyFloat_Type) return Form::kFloat;
  if (base == &PyComplex_Type) return Form::kComplex;
  if (base == &PyFrozenSet_Type) return Form::kFrozenSet;
  if (base == &PyList_Type) return Form::kList;
  if (base == &PyDict_Type) return Form::kDict;
  if (base == &PySet_Type) return Form::kSet;
  return base == &PyByteArray_Type ? Form::kByteArray : Form::kAtom;
}

bool has_state(PyObject* value, const TypeInfo& info) noexcept {
  return _PyObject_GetDictPtr(value) != nullptr || !info.slots.empty();
}

}  // namespace

void refuse_depth() {
  throw WalkError::diagnosed(PyExc_RecursionError, "a static value is nested too deeply or contains itself");
}

DepthGuard::DepthGuard() {
  if (++static_depth > kMaxDepth || !stack_reserve().is_free()) {
    --static_depth;
    refuse_depth();
  }
}

DepthGuard::~DepthGuard() { --static_depth; }

Form form_of(PyObject* value) {
  PyTypeObject* type = Py_TYPE(value);
  if (type == &PyUnicode_Type || type == &PyLong_Type || type == &PyBool_Type || value == Py_None ||
      type == &PyBytes_Type || type == &PyEllipsis_Type) {
    return Form::kAtom;
  }
  if (type == &PyFunction_Type) return Form::kCallable;
  if (type == &PyType_Type) return Form::kIdentity;
  PyTypeObject* const base = content_type(value);
  if (type == base) return form_of_content(base);
  if (type == &PyODict_Type || hooks().default_dict.is(type)) return Form::kDict;
  if (PyMethod_Check(value)) return Form::kMethod;
  if (type == &PySlice_Type || type == &PyRange_Type) return Form::kSlice;
  const TypeInfo& info = TypeTable::instance().find(value);
  if (info.kind == Kind::kStaticLeaf) {
    switch (info.sort) {
      case LeafSort::kJaxArray:
      case LeafSort::kTracer:
      case LeafSort::kNumpyArray:
        return Form::kArray;
      case LeafSort::kNumpyScalar:
        return Form::kNumpyScalar;
      default:
        break;
    }
  }
  if (info.is_frozen_dataclass) return Form::kFrozenDataclass;
  // Each member of an enumeration is there once, unless its class says otherwise.
  PyTypeObject* const compared_as = base == nullptr ? &PyBaseObject_Type : base;
  if (info.is_enum && type->tp_richcompare == compared_as->tp_richcompare && PyType_SUPPORTS_WEAKREFS(type)) {
    return Form::kIdentity;
  }
  const CallableSort sort = callable_sort(value);
  if (sort == CallableSort::kPartial && info.is_in_reach && !info.slots.empty()) return Form::kSubclass;
  if (sort != CallableSort::kNone) return Form::kCallable;
  // As collections.Counter has, a library's own == may take no notice of types.
  const bool is_plain =
      base != nullptr && type->tp_richcompare == base->tp_richcompare && type->tp_hash == base->tp_hash;
  if (info.is_in_reach && base != nullptr && (is_plain || info.is_installed)) {
    return has_state(value, info) ? Form::kSubclass : form_of_content(base);
  }
  if (type->tp_richcompare == PyBaseObject_Type.tp_richcompare && type->tp_hash == PyBaseObject_Type.tp_hash) {
    return Form::kIdentity;
  }
  if (taken_apart().treedef.is(type)) return Form::kTreedef;
  return Form::kGeneric;
}

Ref items_of_dict(PyObject* dict) {
  if (!PyODict_CheckExact(dict)) return Ref::checked(PyDict_Items(dict));
  static Name method("items");
  return Ref::checked(PySequence_List(Ref::checked(PyObject_CallNoArgs(attribute(dict, method).get())).get()));
}

Ref items_of_set(PyObject* set) {
  if (PyFrozenSet_CheckExact(set) || Py_IS_TYPE(set, &PySet_Type)) return Ref::checked(PySequence_List(set));
  return Ref::checked(PySequence_List(Ref::checked(PyFrozenSet_New(set)).get()));
}

Ref content_of(PyObject* value) {
  PyTypeObject* const base = content_type(value);
  if (base == &PyTuple_Type) return Ref::checked(PyTuple_GetSlice(value, 0, PyTuple_GET_SIZE(value)));
  if (base == &PyList_Type) return Ref::checked(PyList_GetSlice(value, 0, PyList_GET_SIZE(value)));
  if (base == &PyDict_Type) return Ref::checked(PyDict_Copy(value));
  if (base == &PySet_Type) return Ref::checked(PySet_New(Ref::checked(PyFrozenSet_New(value)).get()));
  if (base == &PyFrozenSet_Type) return Ref::checked(PyFrozenSet_New(value));
  if (base == &PyLong_Type) return Ref::checked(PyLong_Type.tp_as_number->nb_positive(value));
  if (base == &PyFloat_Type) return Ref::checked(PyFloat_FromDouble(PyFloat_AS_DOUBLE(value)));
  if (base == &PyComplex_Type) return Ref::checked(PyComplex_Type.tp_as_number->nb_positive(value));
  if (base == &PyUnicode_Type) return Ref::checked(PyUnicode_FromObject(value));
  if (base == &PyBytes_Type) {
    return Ref::checked(PyBytes_FromStringAndSize(PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value)));
  }
  if (base == &PyByteArray_Type) return Ref::checked(PyByteArray_FromObject(value));
  if (!PyObject_TypeCheck(value, taken_apart().partial.type())) return {};
  std::vector<Ref> parts;
  parts.reserve(3);
  for (std::size_t i = 0; i < 3; ++i) parts.push_back(Ref::checked(PyObject_GetAttr(value, partial_names()[i])));
  return tuple_of(std::move(parts));
}

[[noreturn]] void refuse_array(PyObject* value) {
  throw WalkError::diagnosed(
      PyExc_TypeError, "found an array (" + type_name(value) +
                           ") as a static value, expected a value that can be hashed; make the field dynamic, or store "
                           "a tuple of Python numbers instead");
}

Py_hash_t own_hash(PyObject* value, Unhashable unhashable) {
  const Py_hash_t hash = PyObject_Hash(value);
  if (hash != -1) return hash;
  if (unhashable == Unhashable::kCompare && Py_TYPE(value)->tp_hash == PyObject_HashNotImplemented) {
    forgive();
    return -1;
  }
  throw WalkError::diagnosed(PyExc_TypeError,
                             "found a static value of type `" + type_name(value) +
                                 "` that cannot be hashed, expected arrays (traced) or values with `__hash__` and "
                                 "`__eq__` (static); give the type a hash, or make it a pytree node");
}

Ref numpy_bytes(PyObject* scalar) {
  static Name method("tobytes");
  return Ref::checked(PyObject_CallNoArgs(attribute(scalar, method).get()));
}

Ref field(PyObject* value, PyObject* name) {
  Ref found = Ref::steal(PyObject_GenericGetAttr(value, name));
  if (!found) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) throw PythonError{};
    PyErr_Clear();
  }
  return found;
}

std::optional<bool> equal_by_dictionary(PyObject* left, PyObject* right) {
  const Ref name = TypeTable::instance().find(right).equal_by;
  if (!name || Py_TYPE(left) != Py_TYPE(right)) return {};
  const Ref one = field(left, name.get()), other = field(right, name.get());
  if (!one || !other || !PyDict_CheckExact(one.get()) || !PyDict_CheckExact(other.get())) return {};
  // Most often all keys and values are identical.
  Py_ssize_t at = 0, other_at = 0, same = 0;
  for (bool are_same = true; are_same; same += are_same ? 1 : 0) {
    const auto [key, value] = next_entry(one.get(), at);
    const auto [other_key, other_value] = next_entry(other.get(), other_at);
    are_same = key && key.get() == other_key.get() && value.get() == other_value.get();
  }
  if (same == PyDict_GET_SIZE(one.get()) && same == PyDict_GET_SIZE(other.get())) return true;
  return checked_int(PyObject_RichCompareBool(one.get(), other.get(), Py_EQ)) == 1;
}

bool equal_atoms(PyObject* left, PyObject* right, Form form, Py_hash_t hash) {
  switch (form) {
    case Form::kIdentity:
      return left == right;
    case Form::kFloat: {
      const double a = PyFloat_AS_DOUBLE(left), b = PyFloat_AS_DOUBLE(right);
      return std::memcmp(&a, &b, sizeof a) == 0;
    }
    case Form::kComplex: {
      const Py_complex a = PyComplex_AsCComplex(left), b = PyComplex_AsCComplex(right);
      return std::memcmp(&a, &b, sizeof a) == 0;
    }
    case Form::kNumpyScalar: {
      static Name dtype("dtype");
      Ref left_dtype = attribute(left, dtype);
      Ref right_dtype = attribute(right, dtype);
      if (checked_int(PyObject_RichCompareBool(left_dtype.get(), right_dtype.get(), Py_EQ)) == 0) return false;
      return checked_int(PyObject_RichCompareBool(numpy_bytes(left).get(), numpy_bytes(right).get(), Py_EQ)) == 1;
    }
    case Form::kArray:
      refuse_array(right);
    default:
      break;
  }
  if (form == Form::kGeneric || form == Form::kTreedef) {
    const Py_hash_t other = own_hash(right, hash == -1 ? Unhashable::kCompare : Unhashable::kRefuse);
    if (other != hash) return false;
  }
  const Ref result = Ref::steal(PyObject_RichCompare(left, right, Py_EQ));
  const int equal = result ? PyObject_IsTrue(result.get()) : -1;
  if (equal < 0) {
    throw WalkError::diagnosed(PyExc_TypeError, "comparing static values of type `" + type_name(right) +
                                                    "` with `==` raised an exception, expected True or False; mend "
                                                    "`__eq__`, or make the value an array");
  }
  return equal == 1;
}

namespace {

// A copy of a built-in container down to its atoms; Python makes that of anything else.
Ref fresh(PyObject* value) {
  const Form form = form_of(value);
  const bool is_partial = taken_apart().partial.is(Py_TYPE(value));
  if (!is_composite(form) && form != Form::kByteArray && !is_partial) return Ref::borrow(value);
  if (PyByteArray_CheckExact(value)) return Ref::checked(PyByteArray_FromObject(value));
  const bool is_dict = PyDict_CheckExact(value), is_tuple = PyTuple_CheckExact(value),
             is_list = PyList_CheckExact(value);
  if (!is_dict && !is_tuple && !is_list && !Py_IS_TYPE(value, &PySet_Type)) {
    return python::copy_of(value);
  }
  const DepthGuard guard;
  std::vector<Ref> items;
  bool same = true;
  each_item(value, form, [&](const Ref& item) {
    items.push_back(item);
    if (!is_dict || items.size() % 2 == 0) items.back() = fresh(item.get());
    same = same && items.back().get() == item.get();
  });
  if (is_tuple && same) return Ref::borrow(value);
  if (is_tuple) return tuple_of(std::move(items));
  if (is_list) {  // not from a tuple, which CPython 3.11 leaks where there is no memory for the items
    Ref copy = Ref::checked(PyList_New(static_cast<Py_ssize_t>(items.size())));
    for (std::size_t i = 0; i < items.size(); ++i) {
      PyList_SET_ITEM(copy.get(), static_cast<Py_ssize_t>(i), items[i].release());
    }
    return copy;
  }
  if (!is_dict) return Ref::checked(PySet_New(tuple_of(std::move(items)).get()));
  Ref copy = Ref::checked(PyDict_New());
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    checked_int(PyDict_SetItem(copy.get(), items[i].get(), items[i + 1].get()));
  }
  return copy;
}

}  // namespace

Ref copied(PyObject* value) { return holds_mutable(value) ? fresh(value) : Ref::borrow(value); }

bool holds_mutable(PyObject* value) {
  const Form form = form_of(value);
  if (is_mutable_form(form)) return true;
  if (form != Form::kTuple && form != Form::kFrozenDataclass) return false;
  const DepthGuard guard;
  bool found = false;
  each_item(value, form, [&](const Ref& item) { found = found || (item && holds_mutable(item.get())); });
  return found;
}

}  // namespace partax
