#include "tree/dictionary_reader.h"

namespace partax {

bool DictionaryReader::read(PyObject* dict, std::size_t keys, std::size_t count, PyObject** values) {
  if (PyDict_GET_SIZE(dict) != static_cast<Py_ssize_t>(count)) return false;
  const std::size_t before = leaves_.num_own_statics();
  PyObject *key, *value;
  Py_ssize_t position = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t expected = spec_.key_order.expected(keys, i);
    if (PyDict_Next(dict, &position, &key, &value) == 0 || !is_key(expected, key)) {
      leaves_.drop_own_statics(before);
      return false;
    }
    if (key != identity_[expected]) leaves_.add_own_static(expected, key);
    values[expected - keys] = value;
  }
  return true;
}

bool DictionaryReader::is_in_order(PyObject* dict, std::size_t keys, std::size_t count) const {
  const Ref iterator = Ref::checked(PyObject_GetIter(dict));
  for (std::size_t i = 0; i < count; ++i) {
    const Ref key = Ref::steal(PyIter_Next(iterator.get()));
    if (!key && PyErr_Occurred() != nullptr) throw PythonError{};
    if (!key || !is_key(keys + i, key.get())) return false;
  }
  return true;
}

void DictionaryReader::expect_order_of(PyObject* dict, std::size_t keys, std::size_t count) const {
  std::vector<Ref> ordered;
  ordered.reserve(count);
  for (std::size_t i = keys; i < keys + count; ++i) {
    if (identity_[i] == nullptr) return;
    ordered.push_back(Ref::borrow(identity_[i]));
  }
  spec_.key_order.expect(dict, tuple_of(std::move(ordered)).get(), keys, spec_.statics.size());
}

}  // namespace partax
