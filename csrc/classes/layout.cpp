#include "classes/layout.h"

#include <structmember.h>

#include <algorithm>

namespace partax {

void append_slots(std::vector<Slot>& to, PyObject* descriptors) {
  for (PyObject* descriptor : Items(descriptors)) {
    to.push_back(
        Slot{attribute(descriptor, "__name__"), reinterpret_cast<PyMemberDescrObject*>(descriptor)->d_member->offset});
  }
}

Layout::Layout(PyObject* description) {
  const auto field = [&](const char* name) { return attribute(description, name); };
  const std::string name = exact_text(field("aux").get());
  aux = name == "keys"    ? Aux::kKeys
        : name == "items" ? Aux::kItems
        : name == "slots" ? Aux::kSlots
        : name == "slot"  ? Aux::kSlot
                          : Aux::kAttributes;
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
  required = Ref::borrow(null_if_none(field("required").get()));
  append_slots(items, field("row").get());
  append_slots(children, field("children").get());
  append_slots(statics, field("statics").get());
  append_slots(made, field("made").get());
  for (PyObject* maker : Items(field("makers").get())) makers.push_back(Ref::borrow(maker));
}

namespace {

class Reader {
 public:
  Reader(const Layout& layout, PyObject* object, PyObject* children, PyObject* aux)
      : layout_(layout), object_(object), children_(children), aux_(aux) {
    dict_ = layout.entries_of(object);
  }

  std::optional<Entries> read() {
    if (dict_ ? !find_own_keys() : layout_.dictionary != Layout::Dictionary::kNone) return {};
    if (!layout_.items.empty() && !are_children(layout_.contiguous_items(object_))) return {};
    for (const Slot& slot : layout_.children) {
      if (!is_child(slot.owned_of(object_))) return {};
    }
    for (const Slot& slot : layout_.statics) {
      found_.statics.push_back(slot.owned_of(object_));
      if (!found_.statics.back()) return {};
    }
    if (!entries() || next_child_ != PySequence_Fast_GET_SIZE(children_)) return {};
    const Py_ssize_t size = dict_ ? PyDict_GET_SIZE(dict_.get()) : 0;
    if (found_.keys.size() != static_cast<std::size_t>(size)) return {};
    if (layout_.required && !has_required()) return {};
    return std::move(found_);
  }

 private:
  bool has_required() const {
    return std::any_of(found_.keys.begin() + static_cast<std::ptrdiff_t>(found_.num_children), found_.keys.end(),
                       [&](const Ref& key) { return PyUnicode_Compare(key.get(), layout_.required.get()) == 0; });
  }

  bool entries() {
    switch (layout_.aux) {
      case Layout::Aux::kKeys:
        return is_tuple(aux_) && each(aux_, [&](PyObject* key) { return is_child(value_of(key)); });
      case Layout::Aux::kItems:
        return is_tuple(aux_) && each(aux_, [&](PyObject* item) { return is_item(item); });
      case Layout::Aux::kAttributes:
        return is_tuple(aux_) && PyTuple_GET_SIZE(aux_) == 3 && attributes();
      case Layout::Aux::kSlots:
        return is_tuple(aux_) && are_statics(Items(aux_));
      case Layout::Aux::kSlot:
        return aux_ == found_.statics.front().get();
    }
    return false;
  }

  bool are_statics(const Items& items) const {
    return std::equal(items.begin(), items.end(), found_.statics.begin(), found_.statics.end(),
                      [](PyObject* item, const Ref& value) { return item == value.get(); });
  }

  bool attributes() {
    PyObject* const child_keys = PyTuple_GET_ITEM(aux_, 0);
    PyObject* const static_keys = PyTuple_GET_ITEM(aux_, 1);
    PyObject* const values = PyTuple_GET_ITEM(aux_, 2);
    if (!is_tuple(child_keys) || !is_tuple(static_keys) || !is_tuple(values)) return false;
    if (PyTuple_GET_SIZE(static_keys) != PyTuple_GET_SIZE(values)) return false;
    if (!each(child_keys, [&](PyObject* key) { return is_child(value_of(attribute_name(key).get())); })) return false;
    Py_ssize_t next = 0;
    return each(static_keys, [&](PyObject* key) {
      return is_static(value_of(attribute_name(key).get()), PyTuple_GET_ITEM(values, next++));
    });
  }

  bool is_item(PyObject* item) {
    if (!is_tuple(item) || PyTuple_GET_SIZE(item) != 2) return false;
    return is_static(value_of(PyTuple_GET_ITEM(item, 0)), PyTuple_GET_ITEM(item, 1));
  }

  // The value of an entry, whose key (the dictionary's own) is added; empty where it is absent.
  Ref value_of(PyObject* key) {
    // A string or a number in its place of a dictionary with such keys: no user code runs.
    if (!PyUnicode_CheckExact(key) && !PyLong_CheckExact(key)) return {};
    Ref own = dict_item(own_keys_.get(), key);
    if (!own || Py_TYPE(own.get()) != Py_TYPE(key)) return {};
    found_.keys.push_back(std::move(own));
    return dict_item(dict_.get(), found_.keys.back().get());
  }

  // Each key of the dictionary by itself, all of them strings or numbers.
  bool find_own_keys() {
    own_keys_ = Ref::checked(PyDict_New());
    Py_ssize_t at = 0;
    for (Ref key = next_entry(dict_.get(), at).first; key; key = next_entry(dict_.get(), at).first) {
      if (!PyUnicode_CheckExact(key.get()) && !PyLong_CheckExact(key.get())) return false;
      checked_int(PyDict_SetItem(own_keys_.get(), key.get(), key.get()));
    }
    return true;
  }

  // Aux data may name an attribute by a number.
  static Ref attribute_name(PyObject* key) {
    return PyLong_CheckExact(key) ? Ref::checked(PyObject_Str(key)) : Ref::borrow(key);
  }

  bool is_child(const Ref& value) {
    const Ref child = item_of(children_, next_child_);
    if (!value || !child) return false;
    found_.num_children += 1;
    ++next_child_;
    return child.get() == value.get();
  }

  bool are_children(const Ref& row) {
    if (!row) return false;
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(row.get());
    for (Py_ssize_t i = 0; i < count; ++i) {
      if (!is_child(item_of(row.get(), i))) return false;
    }
    return true;
  }

  bool is_static(Ref value, PyObject* expected) {
    if (!value || value.get() != expected) return false;
    found_.statics.push_back(std::move(value));
    return true;
  }

  static bool is_tuple(PyObject* object) { return PyTuple_CheckExact(object); }

  template <typename Visit>
  static bool each(PyObject* tuple, Visit&& visit) {
    const Items items(tuple);
    return std::all_of(items.begin(), items.end(), visit);
  }

  const Layout& layout_;
  PyObject* object_;
  PyObject* children_;
  PyObject* aux_;
  Ref dict_;
  Ref own_keys_;
  Entries found_;
  Py_ssize_t next_child_ = 0;
};

}  // namespace

std::optional<Entries> read_entries(const Layout& layout, PyObject* object, PyObject* children, PyObject* aux) {
  return Reader(layout, object, children, aux).read();
}

}  // namespace partax
