// Makes objects without running code of their class, and without a garbage collection.
#pragma once

#include "base/type_table.h"

namespace partax {

// No garbage collection starts in here. A rebuilt model counts for hundreds of allocations, and most often replaces one
// of the same size next, which takes them all back. Only around allocations, which run nobody's code and keep the GIL:
// so nobody can see the switch meanwhile, nor set it.
class CollectionPause {
 public:
  CollectionPause() noexcept : enabled_(PyGC_Disable() != 0) {}
  CollectionPause(const CollectionPause&) = delete;
  CollectionPause& operator=(const CollectionPause&) = delete;
  ~CollectionPause() {
    if (enabled_) PyGC_Enable();
  }

 private:
  bool enabled_;
};

// A result of `make()`, a new reference.
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
  // And a copy of a dictionary in one go.
  Ref make_beside_copy(const TypeInfo& info, PyObject* dict, Ref& copy) const {
    if (is_abstract(info)) return make(info);
    const CollectionPause pause;
    copy = Ref::checked(PyDict_Copy(dict));
    return Ref::checked(make_now(info));
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
