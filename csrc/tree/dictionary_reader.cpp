#include "tree/dictionary_reader.h"

namespace partax {

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
