// Reads dictionaries beside the keys that a spec has for them, each in one pass that runs no Python.
#pragma once

#include "tree/leaf_buffer.h"
#include "tree/tree_spec.h"

namespace partax {

class DictionaryReader {
 public:
  // `spec` is sealed. A key that is another object than the spec's is kept in `leaves`.
  DictionaryReader(const TreeSpec& spec, LeafBuffer& leaves)
      : spec_(spec), identity_(spec.identity.data()), leaves_(leaves) {}

  // Calls `visit(place, value)`, which must not run Python, in the order of the dictionary, until it gives false; a
  // place is one among the keys, which are the static values from `keys` on. False then, and where one is not identical
  // to what is expected next.
  template <typename Visit>
  bool visit_identical(PyObject* dict, std::size_t keys, std::size_t count, Visit&& visit) const {
    if (PyDict_GET_SIZE(dict) != static_cast<Py_ssize_t>(count)) return false;
    PyObject *key, *value;
    Py_ssize_t position = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t expected = expected_at(keys, i);
      if (PyDict_Next(dict, &position, &key, &value) == 0 || key != identity_[expected]) return false;
      if (!visit(expected - keys, value)) return false;
    }
    return true;
  }

  // The same where the keys are equal strings.
  template <typename Visit>
  bool visit_equal(PyObject* dict, std::size_t keys, std::size_t count, Visit&& visit) {
    const std::size_t before = leaves_.num_own_statics();
    PyObject *key, *value;
    Py_ssize_t position = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t expected = expected_at(keys, i);
      if (PyDict_Next(dict, &position, &key, &value) == 0 || !is_key(expected, key) || !visit(expected - keys, value)) {
        leaves_.drop_own_statics(before);
        return false;
      }
      if (key != identity_[expected]) leaves_.add_own_static(expected, key);
    }
    return true;
  }

  // The same in whatever order the identical keys are.
  template <typename Visit>
  bool visit(PyObject* dict, std::size_t keys, std::size_t count, Visit&& visit) {
    if (visit_identical(dict, keys, count, visit)) return true;
    if (PyDict_GET_SIZE(dict) != static_cast<Py_ssize_t>(count)) return false;
    if (visit_equal(dict, keys, count, visit)) return true;
    expect_order_of(dict, identity_ + keys, keys, count);
    return visit_equal(dict, keys, count, visit);
  }

  // Whether an OrderedDict has its keys in the order of the spec: its own order, which its dictionary may not have.
  bool is_in_order(PyObject* dict, std::size_t keys, std::size_t count) const;
  // From now on the keys are expected in the order that this dictionary has them in, within a Reading of it; `known`
  // are its own in the order of the spec. Does nothing where it has others.
  void expect_order_of(PyObject* dict, PyObject* const* known, std::size_t keys, std::size_t count) const;

 private:
  // The static value that is expected as the key at `place` of a dictionary whose first key is the static value `keys`.
  std::size_t expected_at(std::size_t keys, std::size_t place) const noexcept {
    return spec_.key_order.empty() ? keys + place : spec_.key_order[keys + place];
  }
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
