// What a type says of its instances, asked without running code of users, and the version for which it says so.
#pragma once

#include "base/python_api.h"

namespace partax {

// The version of a type: never one that it had before an attribute of it or of a base, or its bases, have changed. It
// is 0 where CPython gives none, and then nothing may be remembered.
unsigned new_type_version(PyTypeObject* type);
inline unsigned type_version(PyTypeObject* type) {
#ifdef Py_GIL_DISABLED
  if (const unsigned version = _Py_atomic_load_uint_relaxed(&type->tp_version_tag)) return version;
#elif PY_VERSION_HEX >= 0x030C0000
  if (type->tp_version_tag != 0) return type->tp_version_tag;
#else
  if ((type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG) != 0) return type->tp_version_tag;
#endif
  return new_type_version(type);
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
