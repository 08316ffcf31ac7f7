#include "classes/type_lookup.h"

namespace partax {
namespace {

Name class_name("__class__"), getattribute_name("__getattribute__");

}  // namespace

unsigned new_type_version(PyTypeObject* type) {
#if PY_VERSION_HEX >= 0x030C0000
  return PyUnstable_Type_AssignVersionTag(type) != 0 ? type->tp_version_tag : 0;
#else
  (void)on_type(type, class_name.get());  // looking a name up assigns a version
  return (type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG) != 0 ? type->tp_version_tag : 0;
#endif
}

bool tells_its_class(PyTypeObject* type) {
  if (on_type(type, class_name.get()).get() != on_type(&PyBaseObject_Type, class_name.get()).get()) return false;
  if (type->tp_getattro == PyObject_GenericGetAttr || type->tp_getattro == PyType_Type.tp_getattro) return true;
  // A `__getattr__` is asked for nothing that is found.
  return on_type(type, getattribute_name.get()).get() == on_type(&PyBaseObject_Type, getattribute_name.get()).get();
}

Place place_of(PyObject* object, PyObject* name) {
  PyTypeObject* type = Py_TYPE(object);
  if (on_type(type, name)) return Place::kAnywhere;
  if (type->tp_getattro == PyObject_GenericGetAttr) {
    return type->tp_dictoffset == 0 ? Place::kNowhere : Place::kInstance;
  }
  const bool is_class = PyType_Check(object) && type->tp_getattro == PyType_Type.tp_getattro;
  if (!is_class || on_type(reinterpret_cast<PyTypeObject*>(object), name)) return Place::kAnywhere;
  return Place::kNowhere;
}

}  // namespace partax
