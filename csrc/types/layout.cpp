#include "types/layout.h"

#include <structmember.h>

namespace partax {
namespace {

void append_slots(std::vector<Slot>& to, PyObject* descriptors) {
  for (PyObject* descriptor : Items(descriptors)) {
    to.push_back(
        Slot{attribute(descriptor, "__name__"), reinterpret_cast<PyMemberDescrObject*>(descriptor)->d_member->offset});
  }
}

}  // namespace

Layout::Layout(PyObject* description) : description(Ref::borrow(description)) {
  const auto field = [&](const char* name) { return attribute(description, name); };
  is_object = field("is_object").get() == Py_True;
  const Ref dict = field("dictionary");
  if (dict.get() == Py_True) {
    dictionary = Dictionary::kOwn;
  } else if (PyUnicode_Check(dict.get())) {
    dictionary = Dictionary::kInAttribute;
    dictionary_name = interned(dict.get());
  } else if (dict.get() != Py_None) {
    dictionary = Dictionary::kInSlot;
    append_slots(dictionary_slot, tuple_of({dict}).get());
  }
  append_slots(items, field("row").get());
  append_slots(children, field("children").get());
  append_slots(statics, field("statics").get());
  append_slots(made, field("made").get());
  for (PyObject* maker : Items(field("makers").get())) makers.push_back(Ref::borrow(maker));
}

}  // namespace partax
