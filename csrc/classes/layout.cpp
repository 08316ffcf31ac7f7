#include "classes/layout.h"

#include <structmember.h>

namespace partax {

void append_slots(std::vector<Slot>& to, PyObject* descriptors) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(descriptors); ++i) {
    PyObject* descriptor = PyTuple_GET_ITEM(descriptors, i);
    to.push_back(
        Slot{attribute(descriptor, "__name__"), reinterpret_cast<PyMemberDescrObject*>(descriptor)->d_member->offset});
  }
}

Layout::Layout(PyObject* description) {
  const char* form = nullptr;
  PyObject *dict = nullptr, *key = nullptr, *row = nullptr, *child_slots = nullptr, *static_slots = nullptr,
           *made_slots = nullptr, *given = nullptr;
  if (PyArg_ParseTuple(description, "sOOO!O!O!O!O!", &form, &dict, &key, &PyTuple_Type, &row, &PyTuple_Type,
                       &child_slots, &PyTuple_Type, &static_slots, &PyTuple_Type, &made_slots, &PyTuple_Type,
                       &given) == 0) {
    throw PythonError{};
  }
  const std::string name = form;
  aux = name == "keys"    ? Aux::kKeys
        : name == "items" ? Aux::kItems
        : name == "slots" ? Aux::kSlots
        : name == "slot"  ? Aux::kSlot
                          : Aux::kAttributes;
  if (dict == Py_True) {
    dictionary = Dictionary::kOwn;
  } else if (PyUnicode_Check(dict)) {
    dictionary = Dictionary::kInAttribute;
    PyObject* interned = Py_NewRef(dict);
    PyUnicode_InternInPlace(&interned);
    dictionary_name = Ref::steal(interned);
  } else if (dict != Py_None) {
    dictionary = Dictionary::kInSlot;
    append_slots(dictionary_slot, Ref::checked(PyTuple_Pack(1, dict)).get());
  }
  if (key != Py_None) required = Ref::borrow(key);
  append_slots(items, row);
  append_slots(children, child_slots);
  append_slots(statics, static_slots);
  append_slots(made, made_slots);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given); ++i) makers.push_back(Ref::borrow(PyTuple_GET_ITEM(given, i)));
}

Ref Layout::only_attribute(PyObject* dict) const {
  if (PyDict_GET_SIZE(dict) != 1) return {};
  Py_ssize_t at = 0;
  auto [key, value] = next_entry(dict, at);
  return key.get() == dictionary_name.get() ? std::move(value) : dict_item(dict, dictionary_name.get());
}

}  // namespace partax
