// Where an object keeps what its registered functions give, where that is a dictionary, or slots.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/owned_reads.h"

namespace partax {

// A slot of instances. (Its descriptor would keep the class alive.)
struct Slot {
  Ref name;
  Py_ssize_t offset;
  // Borrowed: see Reading.
  PyObject* of(PyObject* instance) const noexcept { return place(instance); }
  Ref owned_of(PyObject* instance) const noexcept { return part_at(instance, place(instance)); }
  PyObject*& place(PyObject* instance) const noexcept {
    return *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(instance) + offset);
  }
};

void append_slots(std::vector<Slot>& to, PyObject* descriptors);

struct Layout {
  // What the registered functions make the aux data of.
  enum class Aux : std::uint8_t {
    kKeys,        // the keys, whose values are the children
    kItems,       // (key, value) for each entry, all of them static
    kAttributes,  // the keys of the children, those of the static entries, and the values of these
    kSlots,       // the values of the static slots
    kSlot,        // the value of the only one
  };
  enum class Dictionary : std::uint8_t { kNone, kOwn, kInSlot, kInAttribute };

  Aux aux = Aux::kKeys;
  Dictionary dictionary = Dictionary::kNone;
  std::vector<Slot> dictionary_slot;
  Ref dictionary_name;
  Ref required;                // the key of a static entry that tells which entries are children, if one does
  std::vector<Slot> items;     // of a list or tuple of the children, if that is where they are
  std::vector<Slot> children;  // come before the children of the dictionary
  std::vector<Slot> statics;
  std::vector<Slot> made;  // of a new instance, filled with what these give, which is made once for each result
  std::vector<Ref> makers;

  // As partax._families describes it.
  explicit Layout(PyObject* description);

  // The children where they are in a list or tuple, which must be an exact one; empty where it is absent.
  Ref contiguous_items(PyObject* object) const {
    Ref found = items.empty() ? Ref() : items[0].owned_of(object);
    return found && (PyList_CheckExact(found.get()) || PyTuple_CheckExact(found.get())) ? found : Ref();
  }
  // The dictionary with the entries, which must be an exact one; empty where it is absent.
  Ref entries_of(PyObject* object) const {
    Ref found;
    if (dictionary == Dictionary::kInSlot) {
      found = part_at(object, dictionary_slot[0].place(object));
    } else if (dictionary != Dictionary::kNone) {
      found = Ref::checked(PyObject_GenericGetDict(object, nullptr));
      if (dictionary == Dictionary::kInAttribute) {  // which is the only one
        found = PyDict_GET_SIZE(found.get()) == 1 ? dict_item(found.get(), dictionary_name.get()) : Ref();
      }
    }
    return found && PyDict_CheckExact(found.get()) ? found : Ref();
  }
};

// The entries of an object whose registered functions read a dictionary of it.
struct Entries {
  std::size_t num_children = 0;
  std::vector<Ref> keys;     // those of the children first
  std::vector<Ref> statics;  // the values in the static slots, and of the static entries
};

// What the layout finds where the registered functions gave these children (a list or tuple) and aux data; nothing
// where that is not the same, object by object. Runs no Python of the object's.
std::optional<Entries> read_entries(const Layout& layout, PyObject* object, PyObject* children, PyObject* aux);

}  // namespace partax
