// In which order the dictionaries of a tree had their keys last: a guess that makes reading one a single pass.
#pragma once

#include "base/python_api.h"

namespace partax {

class KeyOrder {
 public:
  // The static value that is expected as the key at `place` of a dictionary whose first key is the static value `keys`.
  std::size_t expected(std::size_t keys, std::size_t place) const noexcept {
    return order_.empty() ? keys + place : order_[keys + place];
  }
  // From now on that of `dict`, within a Reading of it; `ordered`, a tuple, has its keys in the order of the static
  // values, of which there are `num_statics` in all. Does nothing where they are others.
  void expect(PyObject* dict, PyObject* ordered, std::size_t keys, std::size_t num_statics);

 private:
  std::vector<std::uint32_t> order_;  // empty while no dictionary had another order than its static values
};

}  // namespace partax
