// pybind11 as the folders' registrations use it: its functions, with our references and exceptions; but not its
// classes, which crash where memory is short while an instance is made.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/python_api.h"
#include "base/trashcan.h"

namespace partax {

inline pybind11::object give(Ref ref) { return pybind11::reinterpret_steal<pybind11::object>(ref.release()); }

inline PyObject* null_if_none(const pybind11::object& object) { return object.is_none() ? nullptr : object.ptr(); }

// A function of the module, which has the turn while it runs.
template <typename Function, typename... Extra>
void define(pybind11::module_& module, const char* name, Function&& function, const Extra&... extra) {
  module.def(name, std::forward<Function>(function), pybind11::call_guard<Turn>(), extra...);
}

// pybind11 takes it for a TypeError if an int cannot be made.
inline pybind11::object number(std::size_t value) { return give(Ref::checked(PyLong_FromSize_t(value))); }

// pybind11 says that it could not make an object by a RuntimeError; Python's own exception is set and tells why.
inline void translate_exceptions() {
  pybind11::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const PythonError&) {
      set_python_error();
    } catch (const PendingError&) {
      set_python_error();
    } catch (const std::runtime_error&) {
      if (PyErr_Occurred() == nullptr) throw;
    }
  });
}

// Whether a class tells the garbage collector what it holds, by a `traverse(visit, arg)`; its boxes may be in cycles
// then.
template <typename Value, typename = void>
struct IsTraversed : std::false_type {};
template <typename Value>
struct IsTraversed<Value, std::void_t<decltype(&Value::traverse)>> : std::true_type {};

// A Python object around a C++ one.
template <typename Value>
struct Boxed {
  PyObject_HEAD
  PyObject* weakrefs;                          // none; first, as of NestableHead
  Value* value;                                // null while it is made, and once the garbage collector has cleared it
  static inline PyTypeObject* type = nullptr;  // kept for the life of the process

  // The value of such an object. Raises where there is none.
  static Value& in(PyObject* self) {
    Value* value = reinterpret_cast<Boxed*>(self)->value;
    if (value != nullptr) return *value;
    PyErr_SetString(PyExc_ReferenceError, "partax: the object has been cleared by the garbage collector");
    throw PythonError{};
  }

  static int traverse(PyObject* self, visitproc visit, void* arg) noexcept {
    Py_VISIT(Py_TYPE(self));
    if constexpr (IsTraversed<Value>::value) {
      const Value* value = reinterpret_cast<Boxed*>(self)->value;
      if (value != nullptr) return value->traverse(visit, arg);
    }
    return 0;
  }

  static int clear(PyObject* self) noexcept {
    const Turn turn;
    const std::unique_ptr<Value> dropped(std::exchange(reinterpret_cast<Boxed*>(self)->value, nullptr));
    return 0;
  }

  static void dealloc(PyObject* self) noexcept {
    static_assert(offsetof(Boxed, weakrefs) == offsetof(NestableHead, weakrefs));
    dealloc_nested(self, [](PyObject* dying) noexcept { clear(dying); });
  }
};

// Around what `make()` gives. The object is there first: if it cannot be had, nothing has been done.
template <typename Value, typename Make>
Ref box_made(Make&& make) {
  PyTypeObject* type = Boxed<Value>::type;
  Ref object = Ref::checked(type->tp_alloc(type, 0));
  reinterpret_cast<Boxed<Value>*>(object.get())->value = make().release();
  return object;
}

template <typename Value>
Ref box(std::unique_ptr<Value> value) {
  return box_made<Value>([&] { return std::move(value); });
}

// To be specialised: whether functions take this type by what boxes it.
template <typename Value>
struct IsBoxed : std::false_type {};

// The class of the objects around a `Value`; `construct` (may be null) is its `tp_new`.
template <typename Value>
class BoxedClass {
 public:
  BoxedClass(pybind11::module_& module, const char* name, const char* doc, newfunc construct) {
    std::vector<PyType_Slot> slots = {{Py_tp_doc, const_cast<char*>(doc)},
                                      {Py_tp_dealloc, reinterpret_cast<void*>(Boxed<Value>::dealloc)}};
    unsigned int flags = Py_TPFLAGS_DEFAULT | (construct == nullptr ? Py_TPFLAGS_DISALLOW_INSTANTIATION : 0);
    if (construct != nullptr) slots.push_back({Py_tp_new, reinterpret_cast<void*>(construct)});
    if (IsTraversed<Value>::value) {
      slots.push_back({Py_tp_traverse, reinterpret_cast<void*>(Boxed<Value>::traverse)});
      slots.push_back({Py_tp_clear, reinterpret_cast<void*>(Boxed<Value>::clear)});
      flags |= Py_TPFLAGS_HAVE_GC;
    }
    slots.push_back({0, nullptr});
    PyType_Spec spec = {name, sizeof(Boxed<Value>), 0, flags, slots.data()};
    type_ = give(Ref::checked(PyType_FromSpec(&spec)));
    Boxed<Value>::type = reinterpret_cast<PyTypeObject*>(Py_NewRef(type_.ptr()));
    module.add_object(Boxed<Value>::type->tp_name + sizeof("partax._core"), type_);
  }

  template <typename Function, typename... Extra>
  BoxedClass& def(const char* name, Function&& function, const Extra&... extra) {
    type_.attr(name) = pybind11::cpp_function(std::forward<Function>(function), pybind11::name(name),
                                              pybind11::is_method(type_), pybind11::call_guard<Turn>(), extra...);
    return *this;
  }

  template <typename Getter>
  BoxedClass& def_property(const char* name, Getter&& getter) {
    const pybind11::cpp_function function(std::forward<Getter>(getter), pybind11::is_method(type_),
                                          pybind11::call_guard<Turn>());
    type_.attr(name) = pybind11::handle(reinterpret_cast<PyObject*>(&PyProperty_Type))(function);
    return *this;
  }

 private:
  pybind11::object type_;
};

}  // namespace partax

namespace pybind11::detail {

template <typename Value>
class type_caster<Value, enable_if_t<partax::IsBoxed<Value>::value>> {
 public:
  static constexpr auto name = const_name("object");
  template <typename Wanted>
  using cast_op_type = conditional_t<std::is_pointer_v<remove_reference_t<Wanted>>, Value*, Value&>;

  bool load(handle source, bool) noexcept {
    object_ = source.ptr();
    return Py_TYPE(object_) == partax::Boxed<Value>::type;
  }
  operator Value*() { return &partax::Boxed<Value>::in(object_); }
  operator Value&() { return partax::Boxed<Value>::in(object_); }

 private:
  PyObject* object_ = nullptr;  // whose caller holds it
};

}  // namespace pybind11::detail
