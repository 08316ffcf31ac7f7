#include "tree/key_order.h"

#include <algorithm>
#include <numeric>

namespace partax {

void KeyOrder::expect(PyObject* dict, PyObject* ordered, std::size_t keys, std::size_t num_statics) {
  const auto count = static_cast<std::size_t>(PyTuple_GET_SIZE(ordered));
  std::vector<std::pair<PyObject*, std::uint32_t>> by_address;
  by_address.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    by_address.emplace_back(PyTuple_GET_ITEM(ordered, i), static_cast<std::uint32_t>(keys + i));
  }
  std::sort(by_address.begin(), by_address.end());
  std::vector<std::uint32_t> order;
  order.reserve(count);
  if (order_.empty()) {
    order_.resize(num_statics);
    std::iota(order_.begin(), order_.end(), 0);
  }
  PyObject *key, *value;
  Py_ssize_t position = 0;
  while (order.size() < count && PyDict_Next(dict, &position, &key, &value) != 0) {
    const auto found = std::lower_bound(by_address.begin(), by_address.end(), std::make_pair(key, std::uint32_t{0}));
    if (found == by_address.end() || found->first != key) return;
    order.push_back(found->second);
  }
  if (order.size() == count) std::copy(order.begin(), order.end(), order_.data() + keys);
}

}  // namespace partax
