// Python objects around C++ values, which report to the collector what they hold.
#pragma once

#include "base/python_api.h"
// After Python's own header.
#include <structmember.h>

#include <algorithm>

namespace partax {

// The `tp_dealloc` of a boxed object: `clear(self)` drops its references. CPython's trashcan bounds the C stack that a
// chain of objects that own one another takes; from 3.14 on without these macros, which then name no `dealloc`.
inline void dealloc_nested(PyObject* self, [[maybe_unused]] destructor dealloc,
                           void (*clear)(PyObject*) noexcept) noexcept {
  PyObject_GC_UnTrack(self);
  Py_TRASHCAN_BEGIN(self, dealloc);
  const Turn turn;
  // CPython 3.13 drops the exception that is set where memory is too short to destroy an instance with attributes.
  Ref exception = take_exception();
  PyObject_ClearWeakRefs(self);
  clear(self);
  if (exception) restore_exception(std::move(exception));
  const Ref type = Ref::steal(reinterpret_cast<PyObject*>(Py_TYPE(self)));  // an instance of a heap type keeps it
  Py_TYPE(self)->tp_free(self);
  Py_TRASHCAN_END;
}

// What such an object is, or begins with. The value has a `traverse(visit, arg)` for the garbage collector.
template <typename Value>
struct Boxed {
  PyObject_HEAD
  PyObject* weakrefs;
  Value* value;                                // null while it is made, and once the garbage collector has cleared it
  static inline PyTypeObject* type = nullptr;  // kept for the life of the process

  static Value& in(PyObject* self) {
    Value* value = reinterpret_cast<Boxed*>(self)->value;
    if (value != nullptr) return *value;
    raise_error(PyExc_ReferenceError, "partax: the object has been cleared by the garbage collector");
  }

  static int traverse(PyObject* self, visitproc visit, void* arg) noexcept {
    Py_VISIT(Py_TYPE(self));
    const Value* value = reinterpret_cast<Boxed*>(self)->value;
    return value == nullptr ? 0 : value->traverse(visit, arg);
  }

  static int clear(PyObject* self) noexcept {
    const Turn turn;
    const std::unique_ptr<Value> dropped(std::exchange(reinterpret_cast<Boxed*>(self)->value, nullptr));
    return 0;
  }

  static void dealloc(PyObject* self) noexcept {
    dealloc_nested(self, dealloc, [](PyObject* dying) noexcept { clear(dying); });
  }
};

// Makes a class, which lives as long as the process, and adds it to the module by the last part of its name.
inline PyTypeObject* add_type(PyObject* module, PyType_Spec& spec, PyTypeObject* base = nullptr) {
  Ref type = Ref::checked(PyType_FromSpecWithBases(&spec, reinterpret_cast<PyObject*>(base)));
  checked_int(PyModule_AddType(module, reinterpret_cast<PyTypeObject*>(type.get())));
  return reinterpret_cast<PyTypeObject*>(type.release());
}

// The methods of a class that takes type arguments, as in `JitFunction[..., Any]`.
inline PyMethodDef generic_methods[] = {{"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, nullptr},
                                        {nullptr, nullptr, 0, nullptr}};

// Adds a heap type whose instances are, or begin with, boxed objects. Without a `tp_new` in `slots` no call makes them.
template <typename Value>
PyTypeObject* add_boxed_type(PyObject* module, const char* name, const char* doc, std::vector<PyType_Slot> slots,
                             unsigned int flags = 0, std::size_t size = sizeof(Boxed<Value>)) {
  const auto has = [&](int slot) {
    return std::any_of(slots.begin(), slots.end(), [&](const PyType_Slot& own) { return own.slot == slot; });
  };
  static PyMemberDef weak_references[] = {
      {"__weaklistoffset__", T_PYSSIZET, offsetof(Boxed<Value>, weakrefs), READONLY, nullptr},
      {nullptr, 0, 0, 0, nullptr}};
  if (!has(Py_tp_members)) slots.push_back({Py_tp_members, weak_references});
  if (!has(Py_tp_new)) flags |= Py_TPFLAGS_DISALLOW_INSTANTIATION;
  if (!has(Py_tp_clear)) slots.push_back({Py_tp_clear, reinterpret_cast<void*>(Boxed<Value>::clear)});
  slots.push_back({Py_tp_doc, const_cast<char*>(doc)});
  slots.push_back({Py_tp_dealloc, reinterpret_cast<void*>(Boxed<Value>::dealloc)});
  slots.push_back({Py_tp_traverse, reinterpret_cast<void*>(Boxed<Value>::traverse)});
  slots.push_back({0, nullptr});
  flags |= Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC;
  PyType_Spec spec = {name, static_cast<int>(size), 0, flags, slots.data()};
  return add_type(module, spec);
}

// Around what `make()` gives. The object is there first: if it cannot be had, nothing has been done.
template <typename Value, typename Make>
Ref box_made(Make&& make, PyTypeObject* type = Boxed<Value>::type) {
  Ref object = Ref::checked(type->tp_alloc(type, 0));
  reinterpret_cast<Boxed<Value>*>(object.get())->value = make().release();
  return object;
}

template <typename Value>
Ref box(std::unique_ptr<Value> value, PyTypeObject* type = Boxed<Value>::type) {
  return box_made<Value>([&] { return std::move(value); }, type);
}

}  // namespace partax
