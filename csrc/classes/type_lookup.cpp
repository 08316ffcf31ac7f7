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

}  // namespace partax
