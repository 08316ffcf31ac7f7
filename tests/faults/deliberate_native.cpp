// Functions with one bug each in how they take a failed allocation: what the harness must see. And one without.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <new>
#include <vector>

namespace {

PyObject* pair_of_lists() {
  PyObject* pair = PyTuple_New(2);
  if (pair == nullptr) return nullptr;
  for (Py_ssize_t i = 0; i < 2; ++i) {
    PyObject* list = PyList_New(1);
    if (list == nullptr) {
      Py_DECREF(pair);
      return nullptr;
    }
    PyList_SET_ITEM(list, 0, Py_NewRef(Py_None));
    PyTuple_SET_ITEM(pair, i, list);
  }
  return pair;
}

PyObject* ok(PyObject*, PyObject*) {
  try {
    const std::vector<int> numbers(100, 1);
    return pair_of_lists();
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  }
}

PyObject* ignores_null(PyObject*, PyObject*) {
  PyObject* list = PyList_New(1);
  PyList_SET_ITEM(list, 0, Py_NewRef(Py_None));  // the bug
  return list;
}

PyObject* leaks(PyObject*, PyObject*) {
  PyObject* first = PyList_New(1);
  if (first == nullptr) return nullptr;
  PyList_SET_ITEM(first, 0, Py_NewRef(Py_None));
  PyObject* second = PyList_New(1);
  if (second == nullptr) return nullptr;  // the bug: `first` is still there
  Py_DECREF(first);
  PyList_SET_ITEM(second, 0, Py_NewRef(Py_None));
  return second;
}

PyObject* half_built(PyObject*, PyObject*) {
  PyObject* list = PyList_New(0);
  if (list == nullptr) return nullptr;
  for (int i = 0; i < 40; ++i) {
    if (PyList_Append(list, Py_None) < 0) {
      PyErr_Clear();  // the bug
      break;
    }
  }
  return list;
}

PyObject* changes_first(PyObject*, PyObject* dict) {
  if (PyDict_SetItemString(dict, "state", Py_True) < 0) return nullptr;  // the bug: before it may fail
  PyObject* pair = pair_of_lists();
  if (pair != nullptr && PyDict_SetItemString(dict, "state", Py_False) < 0) Py_CLEAR(pair);
  return pair;
}

PyObject* keeps_argument(PyObject*, PyObject* argument) {
  Py_INCREF(argument);
  PyObject* pair = pair_of_lists();
  if (pair == nullptr) return nullptr;  // the bug: the reference is kept
  Py_DECREF(argument);
  return pair;
}

PyObject* cannot_raise(PyObject*, PyObject*) {
  PyObject* pair = pair_of_lists();
  if (pair == nullptr) {
    PyErr_WriteUnraisable(Py_True);  // the bug
    Py_RETURN_NONE;
  }
  return pair;
}

PyMethodDef methods[] = {{"ok", ok, METH_NOARGS, nullptr},
                         {"ignores_null", ignores_null, METH_NOARGS, nullptr},
                         {"leaks", leaks, METH_NOARGS, nullptr},
                         {"half_built", half_built, METH_NOARGS, nullptr},
                         {"changes_first", changes_first, METH_O, nullptr},
                         {"keeps_argument", keeps_argument, METH_O, nullptr},
                         {"cannot_raise", cannot_raise, METH_NOARGS, nullptr},
                         {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "deliberate_native", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

extern "C" __attribute__((visibility("default"))) PyObject* PyInit_deliberate_native() {
  return PyModule_Create(&definition);
}
