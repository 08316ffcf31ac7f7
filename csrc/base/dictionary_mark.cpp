#include "base/dictionary_mark.h"

namespace partax {

#if PY_VERSION_HEX >= 0x030C0000

int DictionaryMark::told(PyDict_WatchEvent event, PyObject* dict, PyObject* key, PyObject* value) noexcept {
  (void)event, (void)dict, (void)key, (void)value;
  ++changes;
  return 0;
}

bool DictionaryMark::may_lie_in_object(PyObject* dict) noexcept {
  const PyDictValues* const values = reinterpret_cast<PyDictObject*>(dict)->ma_values;
  if (values == nullptr) return false;
#if PY_VERSION_HEX >> 16 == 0x030D
  return reinterpret_cast<const std::uint8_t*>(values)[2] != 0;  // `embedded` of CPython's struct _dictvalues
#else
  return true;
#endif
}

bool DictionaryMark::watch(PyObject* dict) noexcept {
  if (watcher < 0 || (!tells_of_attributes && may_lie_in_object(dict))) return false;
  if (PyDict_Watch(watcher, dict) == 0) return true;
  PyErr_Clear();
  return false;
}

void DictionaryMark::begin() {
  watcher = PyDict_AddWatcher(told);
  if (watcher < 0) return PyErr_Clear();  // others have taken all that there are: no dictionary is known
  const Ref name = Ref::checked(PyUnicode_InternFromString("attribute"));
  const Ref cls = Ref::checked(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "s(){}", "Probe"));
  const Ref object = Ref::checked(PyObject_CallNoArgs(cls.get()));
  checked_int(PyObject_GenericSetAttr(object.get(), name.get(), Py_False));
  const Ref dict = Ref::checked(PyObject_GenericGetDict(object.get(), nullptr));
  checked_int(PyDict_Watch(watcher, dict.get()));
  const std::uint64_t before = changes;
  checked_int(PyObject_GenericSetAttr(object.get(), name.get(), Py_True));
  tells_of_attributes = changes != before;
}

#endif

}  // namespace partax
