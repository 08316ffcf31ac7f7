// The static values of an object that is being made from a spec.
#pragma once

#include "tree/rebuild.h"

namespace partax {

class GivenStatics {
 public:
  GivenStatics(const TreeSpec& spec, LeafSource& source)
      : spec_(spec),
        source_(source),
        stored_(!spec.identity.empty() && source.all_stored() ? spec.identity.data() : nullptr) {}

  bool has(std::size_t index) const { return !spec_.statics[index].absent() || source_.gives_static(index); }

  Ref at(std::size_t index) const {
    return stored_ != nullptr && stored_[index] != nullptr ? Ref::borrow(stored_[index]) : asked_for(index);
  }

  // A dictionary of which that of a node is a copy, borrowed; null where none is known.
  PyObject* pattern(const Node& node) const noexcept {
    if (stored_ == nullptr || spec_.patterns.empty()) return nullptr;
    return spec_.patterns[static_cast<std::size_t>(&node - spec_.nodes.data())].get();
  }

 private:
  Ref asked_for(std::size_t index) const;

  const TreeSpec& spec_;
  LeafSource& source_;
  PyObject* const* const stored_;
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
