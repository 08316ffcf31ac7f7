// The static values of an object that is being made from a spec.
#pragma once

#include "tree/rebuild.h"

namespace partax {

class GivenStatics {
 public:
  GivenStatics(const TreeSpec& spec, LeafSource& source)
      : spec_(spec), source_(source), all_stored_(source.all_stored()) {}

  bool has(std::size_t index) const { return !spec_.statics[index].absent() || source_.gives_static(index); }

  Ref at(std::size_t index) const {
    PyObject* const stored = known(index);
    return stored != nullptr ? Ref::borrow(stored) : asked_for(index);
  }

 private:
  // The object that a static value surely is, or null where it has to be asked for.
  PyObject* known(std::size_t index) const {
    return !spec_.identity.empty() && (all_stored_ || source_.is_stored(index)) ? spec_.identity[index] : nullptr;
  }
  Ref asked_for(std::size_t index) const;

  const TreeSpec& spec_;
  LeafSource& source_;
  const bool all_stored_;
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
