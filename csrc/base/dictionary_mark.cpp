#include "base/dictionary_mark.h"

namespace partax {

#if PY_VERSION_HEX >= 0x030C0000

int DictionaryMark::told(PyDict_WatchEvent event, PyObject* dict, PyObject* key, PyObject* value) noexcept {
  (void)event, (void)dict, (void)key, (void)value;
  ++changes;
  return 0;
}

bool DictionaryMark::watch(PyObject* dict) noexcept {
  if (watcher < 0) return false;
  if (!tells_of_attributes && reinterpret_cast<PyDictObject*>(dict)->ma_values != nullptr) return false;
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
