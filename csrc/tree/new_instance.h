// Makes objects without running code of their class, and without a garbage collection.
#pragma once

#include "base/collection_pause.h"
#include "classes/type_table.h"

namespace partax {

// A result of `make()`, a new reference. A rebuilt model counts for hundreds of allocations, and most often replaces
// one of the same size next, which takes them all back.
template <typename Make>
Ref allocated(Make&& make) {
  const CollectionPause pause;
  return Ref::checked(make());
}

// Makes instances of which nothing is set.
class EmptyInstances {
 public:
  Ref make(const TypeInfo& info) const {
    // An abstract class raises, and runs Python to say why.
    return is_abstract(info) ? Ref::checked(make_now(info)) : allocated([&] { return make_now(info); });
  }

 private:
  static bool is_abstract(const TypeInfo& info) noexcept { return (info.type->tp_flags & Py_TPFLAGS_IS_ABSTRACT) != 0; }
  // A new reference or null.
  PyObject* make_now(const TypeInfo& info) const {
    return PyBaseObject_Type.tp_new(info.type, no_arguments_.get(), nullptr);
  }

  const Ref no_arguments_ = Ref::checked(PyTuple_New(0));
};

// Sets an attribute of a new instance as `object.__setattr__` does, which keeps it out of a dictionary where it can.
inline void set_attribute(const Ref& object, PyObject* name, PyObject* value) {
  checked_int(PyObject_GenericSetAttr(object.get(), name, value));
}

}  // namespace partax
