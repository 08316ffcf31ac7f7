// Reads of objects that other threads may change meanwhile: what is found is owned.
#pragma once

#include "base/python_api.h"

namespace partax {

// Of a list or tuple; empty where it is shorter.
inline Ref item_of(PyObject* sequence, Py_ssize_t i) noexcept {
  const Reading reading(sequence);
  return i < PySequence_Fast_GET_SIZE(sequence) ? Ref::borrow(PySequence_Fast_GET_ITEM(sequence, i)) : Ref();
}

// Empty where the key is absent. Comparing keys may run user code.
inline Ref dict_item(PyObject* dict, PyObject* key) {
  PyObject* value = nullptr;
#if PY_VERSION_HEX >= 0x030D0000
  checked_int(PyDict_GetItemRef(dict, key, &value));
#else
  value = Py_XNewRef(PyDict_GetItemWithError(dict, key));
  if (value == nullptr && PyErr_Occurred() != nullptr) throw PythonError{};
#endif
  return Ref::steal(value);
}

// The next entry of a dictionary from `at` on; an empty key at its end.
inline std::pair<Ref, Ref> next_entry(PyObject* dict, Py_ssize_t& at) noexcept {
  const Reading reading(dict);
  PyObject *key, *value;
  if (PyDict_Next(dict, &at, &key, &value) == 0) return {};
  return {Ref::borrow(key), Ref::borrow(value)};
}

// The value of the only entry, if the (interned) name is its key; else empty.
inline Ref only_item(PyObject* dict, PyObject* name) noexcept {
  const Reading reading(dict);
  PyObject *key, *value;
  Py_ssize_t at = 0;
  const bool is_only = PyDict_GET_SIZE(dict) == 1 && PyDict_Next(dict, &at, &key, &value) != 0 && key == name;
  return is_only ? Ref::borrow(value) : Ref();
}

inline Ref part_at(PyObject* object, PyObject* const& place) noexcept {
  const Reading reading(object);
  return Ref::borrow(place);
}

// Puts another object there, and gives what was there.
inline Ref replaced(PyObject* object, PyObject*& place, PyObject* value) noexcept {
  const Reading reading(object);
#ifdef Py_GIL_DISABLED
  return Ref::steal(static_cast<PyObject*>(_Py_atomic_exchange_ptr(&place, Py_NewRef(value))));
#else
  return Ref::steal(std::exchange(place, Py_NewRef(value)));
#endif
}
inline Ref code_of(PyObject* function) noexcept {
  return part_at(function, reinterpret_cast<PyFunctionObject*>(function)->func_code);
}

// What a type or its first base that has the (interned) name has for it, or empty. Sets no error.
inline Ref on_type(PyTypeObject* type, PyObject* name) noexcept {
#if PY_VERSION_HEX >= 0x030D0000
  return Ref::steal(_PyType_LookupRef(type, name));
#else
  return Ref::borrow(_PyType_Lookup(type, name));
#endif
}

// An object's attribute, or empty where it is absent; an error other than AttributeError is raised. Makes no error
// object where CPython looks attributes up for the type.
inline Ref optional_attribute(PyObject* object, PyObject* name) {
  PyObject* value = nullptr;
#if PY_VERSION_HEX >= 0x030D0000
  checked_int(PyObject_GetOptionalAttr(object, name, &value));
#else
  checked_int(_PyObject_LookupAttr(object, name, &value));
#endif
  return Ref::steal(value);
}

}  // namespace partax
