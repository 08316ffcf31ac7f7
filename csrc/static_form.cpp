#include "static_form.h"

#include "callable_value.h"
#include "stack_room.h"

namespace partax {
namespace {

thread_local int static_depth = 0;

bool compares_like(PyTypeObject* type, PyTypeObject& base) noexcept {
  return type->tp_richcompare == base.tp_richcompare;
}

// True for the treedef of a leaf, which has no aux data.
bool is_one_leaf(PyObject* treedef) {
  for (const char* count : {"num_nodes", "num_leaves"}) {
    const Ref number = attribute(treedef, count);
    if (PyLong_AsLong(number.get()) != 1) return false;
  }
  return true;
}

}  // namespace

DepthGuard::DepthGuard() {
  if (++static_depth > kMaxDepth || !stack_reserve().is_free()) {
    --static_depth;
    throw WalkError::diagnosed(PyExc_RecursionError, "a static value is nested too deeply or contains itself");
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
  if (PyTuple_Check(value) && compares_like(type, PyTuple_Type)) return Form::kTuple;
  if (type == &PyFloat_Type) return Form::kFloat;
  if (type == &PyComplex_Type) return Form::kComplex;
  if (PyFrozenSet_Check(value)) return Form::kFrozenSet;
  if (PyList_Check(value)) return Form::kList;
  if (PyDict_Check(value)) return Form::kDict;
  if (PySet_Check(value)) return Form::kSet;
  if (PyByteArray_Check(value)) return Form::kByteArray;
  if (PyMethod_Check(value)) return Form::kMethod;
  if (callable_sort(value) != CallableSort::kNone) return Form::kCallable;
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
  if (PyFloat_Check(value) && compares_like(type, PyFloat_Type)) return Form::kFloat;
  if (PyComplex_Check(value) && compares_like(type, PyComplex_Type)) return Form::kComplex;
  if (type->tp_richcompare == PyBaseObject_Type.tp_richcompare && type->tp_hash == PyBaseObject_Type.tp_hash) {
    return Form::kIdentity;
  }
  if (hooks().treedef_type && reinterpret_cast<PyObject*>(type) == hooks().treedef_type.get()) return Form::kTreedef;
  return Form::kGeneric;
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

Ref numpy_bytes(PyObject* scalar) { return Ref::checked(PyObject_CallNoArgs(attribute(scalar, "tobytes").get())); }

Ref field(PyObject* value, PyObject* name) {
  Ref found = Ref::steal(PyObject_GenericGetAttr(value, name));
  if (!found) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) throw PythonError{};
    PyErr_Clear();
  }
  return found;
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
      Ref left_dtype = attribute(left, "dtype");
      Ref right_dtype = attribute(right, "dtype");
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
  Ref result = Ref::steal(PyObject_RichCompare(left, right, Py_EQ));
  if (!result) {
    throw WalkError::diagnosed(PyExc_TypeError, "comparing static values of type `" + type_name(right) +
                                                    "` with `==` raised an exception, expected True or False; mend "
                                                    "`__eq__`, or make the value an array");
  }
  if (result.get() == Py_True) {
    if (form != Form::kTreedef || is_one_leaf(left)) return true;
    // Treedefs compare aux data loosely (1 == True); their text does not.
    Ref left_text = Ref::checked(PyObject_Str(left)), right_text = Ref::checked(PyObject_Str(right));
    return checked_int(PyObject_RichCompareBool(left_text.get(), right_text.get(), Py_EQ)) == 1;
  }
  if (result.get() == Py_False) return false;
  if (std::strcmp(Py_TYPE(result.get())->tp_name, "numpy.bool") == 0 ||
      std::strcmp(Py_TYPE(result.get())->tp_name, "numpy.bool_") == 0) {
    return checked_int(PyObject_IsTrue(result.get())) == 1;
  }
  throw WalkError::diagnosed(PyExc_TypeError, "comparing static values of type `" + type_name(right) +
                                                  "` with `==` gave a `" + type_name(result.get()) +
                                                  "`, expected True or False; static values must compare to a bool");
}

namespace {

// A frozen dataclass with copies of its fields, or itself where they are immutable or it cannot be made anew.
Ref copied_dataclass(PyObject* value) {
  PyTypeObject* type = Py_TYPE(value);
  const TypeInfoPtr info = TypeTable::instance().shared(TypeTable::instance().find(value));
  std::vector<Ref> fields;
  bool same = true;
  for (const Ref& name : info->frozen_fields) {
    const Ref present = field(value, name.get());
    fields.push_back(present ? copied(present.get()) : Ref());
    same = same && fields.back().get() == present.get();
  }
  if (same || (type->tp_base != &PyBaseObject_Type && type->tp_new != PyBaseObject_Type.tp_new)) {
    return Ref::borrow(value);
  }
  const Ref empty = Ref::checked(PyTuple_New(0));
  Ref copy = Ref::checked(PyBaseObject_Type.tp_new(type, empty.get(), nullptr));
  if (type->tp_dictoffset != 0) {
    const Ref attributes = Ref::checked(PyObject_GenericGetDict(copy.get(), nullptr));
    checked_int(PyDict_Update(attributes.get(), Ref::checked(PyObject_GenericGetDict(value, nullptr)).get()));
  }
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (fields[i]) checked_int(PyObject_GenericSetAttr(copy.get(), info->frozen_fields[i].get(), fields[i].get()));
  }
  return copy;
}

}  // namespace

Ref copied(PyObject* value) {
  const DepthGuard guard;
  if (PyByteArray_CheckExact(value)) return Ref::checked(PyByteArray_FromObject(value));
  if (Py_IS_TYPE(value, &PySet_Type)) return Ref::checked(PySet_New(value));
  if (PyList_CheckExact(value)) {
    Ref copy = Ref::checked(PyList_GetSlice(value, 0, PyList_GET_SIZE(value)));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(copy.get()); ++i) {
      Ref item = copied(PyList_GET_ITEM(copy.get(), i));
      checked_int(PyList_SetItem(copy.get(), i, item.release()));
    }
    return copy;
  }
  if (PyDict_CheckExact(value)) {
    Ref copy = Ref::checked(PyDict_Copy(value));
    Ref items = Ref::checked(PyDict_Items(copy.get()));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); ++i) {
      PyObject* pair = PyList_GET_ITEM(items.get(), i);
      Ref item = copied(PyTuple_GET_ITEM(pair, 1));
      checked_int(PyDict_SetItem(copy.get(), PyTuple_GET_ITEM(pair, 0), item.get()));
    }
    return copy;
  }
  if (PyTuple_CheckExact(value)) {
    const Py_ssize_t size = PyTuple_GET_SIZE(value);
    std::vector<Ref> items;
    bool same = true;
    for (Py_ssize_t i = 0; i < size; ++i) {
      items.push_back(copied(PyTuple_GET_ITEM(value, i)));
      same = same && items.back().get() == PyTuple_GET_ITEM(value, i);
    }
    return same ? Ref::borrow(value) : tuple_of(std::move(items));
  }
  return form_of(value) == Form::kFrozenDataclass ? copied_dataclass(value) : Ref::borrow(value);
}

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
