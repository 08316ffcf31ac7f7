// Reads dictionaries beside the keys that a spec has for them, each in one pass that runs no Python.
#pragma once

#include "tree/leaf_buffer.h"
#include "tree/tree_spec.h"

namespace partax {

class DictionaryReader {
 public:
  // `spec` is sealed. A key that is another object than the spec's is kept in `leaves`, maybe more than once.
  DictionaryReader(const TreeSpec& spec, LeafBuffer& leaves)
      : spec_(spec), identity_(spec.identity.data()), leaves_(leaves) {}

  // Calls `visit(place, value)`, which must not run Python, in the order of the dictionary, until it gives false; a
  // place is one among the keys, which are the static values from `keys` on. False then, and where a key is not the
  // one that is expected next, or an equal string.
  template <typename Visit>
  bool visit(PyObject* dict, std::size_t keys, std::size_t count, Visit&& visit) const {
    if (PyDict_GET_SIZE(dict) != static_cast<Py_ssize_t>(count)) return false;
    PyObject *key, *value;
    Py_ssize_t position = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t expected = spec_.key_order.empty() ? keys + i : spec_.key_order[keys + i];
      if (PyDict_Next(dict, &position, &key, &value) == 0) return false;
      if (key != identity_[expected] && !keep_equal(expected, key)) return false;
      if (!visit(expected - keys, value)) return false;
    }
    return true;
  }

  // The same in whatever order the keys are.
  template <typename Visit>
  bool visit_in_any_order(PyObject* dict, std::size_t keys, std::size_t count, Visit&& visit) const {
    if (this->visit(dict, keys, count, visit)) return true;
    expect_order_of(dict, identity_ + keys, keys, count);
    return this->visit(dict, keys, count, visit);
  }

  // Whether an OrderedDict has its keys in the order of the spec: its own order, which its dictionary may not have.
  bool is_in_order(PyObject* dict, std::size_t keys, std::size_t count) const;
  // From now on the keys are expected in the order that this dictionary has them in, within a Reading of it; `known`
  // are its own in the order of the spec. Does nothing where it has others.
  void expect_order_of(PyObject* dict, PyObject* const* known, std::size_t keys, std::size_t count) const;

 private:
  // Whether a key is an equal string, which then is the call's own.
  bool keep_equal(std::size_t index, PyObject* key) const;
  // Whether a key is identical, or an equal string.
  bool is_key(std::size_t index, PyObject* key) const {
    PyObject* known = identity_[index];
    return key == known || (known != nullptr && PyUnicode_CheckExact(known) && PyUnicode_CheckExact(key) &&
                            PyUnicode_Compare(known, key) == 0);
  }

  const TreeSpec& spec_;
  PyObject* const* identity_;
  LeafBuffer& leaves_;
};

}  // namespace partax
