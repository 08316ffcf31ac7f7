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

  // From this index on: the object that each is in all that are made from the spec, or null; null where that is not
  // known of any.
  PyObject* const* stored(std::size_t index) const noexcept { return stored_ == nullptr ? nullptr : stored_ + index; }

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
