#include "pytree/unchanged_reader.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

namespace partax {
namespace {

bool are_equal_keys(PyObject* key, PyObject* other) {
  return key == other || (key != nullptr && other != nullptr && PyUnicode_CheckExact(key) &&
                          PyUnicode_CheckExact(other) && PyUnicode_Compare(key, other) == 0);
}

// Of keys of dictionaries: texts by what they say, all others by identity.
struct KeyHash {
  std::size_t operator()(PyObject* key) const {
    const bool is_text = key != nullptr && PyUnicode_CheckExact(key);
    return is_text ? static_cast<std::size_t>(PyObject_Hash(key)) : std::hash<PyObject*>()(key);
  }
};
struct KeyEqual {
  bool operator()(PyObject* key, PyObject* other) const { return are_equal_keys(key, other); }
};

}  // namespace

bool UnchangedReader::is_in_order(PyObject* dict, std::size_t keys, std::size_t count) const {
  const Ref iterator = Ref::checked(PyObject_GetIter(dict));
  for (std::size_t i = 0; i < count; ++i) {
    const Ref key = Ref::steal(PyIter_Next(iterator.get()));
    if (!key && PyErr_Occurred() != nullptr) throw PythonError{};
    if (!key || !is_key(keys + i, key.get())) return false;
  }
  return true;
}

bool UnchangedReader::is_key(std::size_t index, PyObject* key) const { return are_equal_keys(identity_[index], key); }

bool UnchangedReader::keep_equal(std::size_t index, PyObject* key) const {
  if (!is_key(index, key)) return false;
  leaves_.add_own_static(index, key);
  return true;
}

void UnchangedReader::expect_order_of(PyObject* dict, PyObject* const* dict_keys, std::size_t keys,
                                      std::size_t count) const {
  std::unordered_map<PyObject*, std::uint32_t, KeyHash, KeyEqual> places;
  for (std::size_t i = 0; i < count; ++i) places.emplace(dict_keys[i], static_cast<std::uint32_t>(keys + i));
  std::vector<std::uint32_t> order;
  order.reserve(count);
  std::vector<std::uint32_t>& all = spec_.key_order;
  if (all.empty()) {
    all.resize(spec_.statics.size());
    std::iota(all.begin(), all.end(), 0);
  }
  PyObject *key, *value;
  Py_ssize_t position = 0;
  while (order.size() < count && PyDict_Next(dict, &position, &key, &value) != 0) {
    const auto place = places.find(key);
    if (place == places.end()) return;
    order.push_back(place->second);
  }
  if (order.size() == count) std::copy(order.begin(), order.end(), all.data() + keys);
}

}  // namespace partax
