// Where an object keeps what its registered functions give, where that is a dictionary, or slots.
#pragma once

#include <cstdint>
#include <vector>

#include "base/owned_reads.h"

namespace partax {

// A slot of instances. (Its descriptor would keep the class alive.)
struct Slot {
  Ref name;
  Py_ssize_t offset;
  PyObject* of(PyObject* instance) const noexcept { return place(instance); }
  Ref owned_of(PyObject* instance) const noexcept { return part_at(instance, place(instance)); }
  PyObject*& place(PyObject* instance) const noexcept {
    return *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(instance) + offset);
  }
};

struct Layout {
  enum class Dictionary : std::uint8_t { kNone, kOwn, kInSlot, kInAttribute };

  Ref description;         // the partax._families.flax.Layout
  bool is_object = false;  // whether instances are nnx objects, which have an identity
  Dictionary dictionary = Dictionary::kNone;
  std::vector<Slot> dictionary_slot;
  Ref dictionary_name;
  std::vector<Slot> items;     // of a list or tuple of the children, if that is where they are
  std::vector<Slot> children;  // come before the children of the dictionary
  std::vector<Slot> statics;
  std::vector<Slot> made;  // of a new instance, filled with what these give, which is made once for each result
  std::vector<Ref> makers;

  explicit Layout(PyObject* description);

  // The children where they are in a list or tuple, which must be an exact one; empty where it is absent.
  Ref contiguous_items(PyObject* object) const {
    Ref row = items.empty() ? Ref() : items[0].owned_of(object);
    return row && (PyList_CheckExact(row.get()) || PyTuple_CheckExact(row.get())) ? row : Ref();
  }
  // The dictionary with the entries, which must be an exact one; empty where it is absent.
  Ref entries_of(PyObject* object) const {
    Ref dict;
    if (dictionary == Dictionary::kInSlot) {
      dict = part_at(object, dictionary_slot[0].place(object));
    } else if (dictionary != Dictionary::kNone) {
      dict = Ref::checked(PyObject_GenericGetDict(object, nullptr));
      if (dictionary == Dictionary::kInAttribute) dict = only_item(dict.get(), dictionary_name.get());
    }
    if (dict && !PyDict_CheckExact(dict.get())) dict = Ref();
    return dict;
  }
};

}  // namespace partax
