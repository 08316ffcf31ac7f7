// The static values of an object that is being made from a spec.
#pragma once

#include <algorithm>

#include "tree/rebuild.h"

namespace partax {

class GivenStatics {
 public:
  GivenStatics(const TreeSpec& spec, LeafSource& source)
      : spec_(spec), source_(source), known_(source.known_statics(spec)) {}

  bool has(std::size_t index) const { return !spec_.statics[index].absent() || source_.gives_static(index); }

  Ref at(std::size_t index) const {
    return known_ != nullptr && known_[index] != nullptr ? Ref::borrow(known_[index]) : asked_for(index);
  }

  // A dictionary of which that of a node is a copy, borrowed; null where none is known.
  PyObject* pattern(const Node& node) const noexcept {
    if (known_ == nullptr || spec_.patterns.empty()) return nullptr;
    PyObject* const pattern = spec_.patterns[static_cast<std::size_t>(&node - spec_.nodes.data())].get();
    return pattern != nullptr && (known_ == spec_.identity.data() || has_entries_of_spec(node)) ? pattern : nullptr;
  }

 private:
  Ref asked_for(std::size_t index) const;
  bool has_entries_of_spec(const Node& node) const noexcept {
    const std::size_t first = EntryPlaces(node).statics, count = std::size_t{2} * node.entries;
    return std::equal(known_ + first, known_ + first + count, spec_.identity.data() + first);
  }

  const TreeSpec& spec_;
  LeafSource& source_;
  PyObject* const* const known_;
};

inline Ref GivenStatics::asked_for(std::size_t index) const {
  Ref value = source_.static_value(spec_, index);
  if (!value) {
    PyErr_SetString(PyExc_ReferenceError, "partax: a static value of a result was dropped during the call");
    throw PythonError{};
  }
  return value;
}

}  // namespace partax
