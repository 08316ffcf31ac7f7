// What the dictionaries of a tree held when a spec's static values were found in them, by identity: the same, as long
// as each is marked.
#pragma once

#include <algorithm>
#include <vector>

#include "base/dictionary_mark.h"

namespace partax {

class KnownDictionaries {
 public:
  // Whether an object is the dictionary that is known of a node, unchanged. `owner` as of DictionaryMark.
  bool hold(std::size_t node, PyObject* object, PyObject* owner) const noexcept {
    return !known_.empty() && known_[node].mark.is_on(object, owner);
  }
  // The children that such a one has, in the order of the spec. Borrowed from it, so good until any Python runs.
  PyObject* const* children(std::size_t node) const noexcept { return children_.data() + known_[node].first_child; }

  // Of one node always as many.
  void remember(std::size_t node, std::size_t num_nodes, PyObject* dict, PyObject* owner, PyObject* const* children,
                std::size_t count) {
    if (known_.empty()) known_.resize(num_nodes);
    Known& known = known_[node];
    if (known.first_child == kUnmet) {
      const std::size_t first = children_.size();
      children_.resize(first + count);
      known.first_child = static_cast<std::uint32_t>(first);
    }
    PyObject** const before = children_.data() + known.first_child;
    const bool is_as_before = std::equal(children, children + count, before);
    if (!is_as_before) std::copy_n(children, count, before);
    known.mark.put(dict, owner, is_as_before);
  }

 private:
  static constexpr std::uint32_t kUnmet = ~std::uint32_t{0};
  struct Known {
    DictionaryMark mark;
    std::uint32_t first_child = kUnmet;
  };

  std::vector<Known> known_;  // by node; empty while none is known
  std::vector<PyObject*> children_;
};

}  // namespace partax
