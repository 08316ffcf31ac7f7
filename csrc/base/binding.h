// pybind11 as the folders' registrations use it: its functions, with our references and exceptions; but not its
// classes, which crash where memory is short while an instance is made.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <stdexcept>
#include <type_traits>

#include "base/python_api.h"

namespace partax {

inline pybind11::object give(Ref ref) { return pybind11::reinterpret_steal<pybind11::object>(ref.release()); }

inline PyObject* null_if_none(const pybind11::object& object) { return object.is_none() ? nullptr : object.ptr(); }

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

// A Python object around a C++ one.
template <typename Value>
struct Boxed {
  PyObject_HEAD
  Value* value;
  static inline PyTypeObject* type = nullptr;  // kept for the life of the process

  static void dealloc(PyObject* self) noexcept {
    delete reinterpret_cast<Boxed*>(self)->value;
    free_heap_object(self);
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
    PyType_Slot slots[] = {{Py_tp_doc, const_cast<char*>(doc)},
                           {Py_tp_dealloc, reinterpret_cast<void*>(Boxed<Value>::dealloc)},
                           {construct == nullptr ? 0 : Py_tp_new, reinterpret_cast<void*>(construct)},
                           {0, nullptr}};
    const unsigned int flags = Py_TPFLAGS_DEFAULT | (construct == nullptr ? Py_TPFLAGS_DISALLOW_INSTANTIATION : 0);
    PyType_Spec spec = {name, sizeof(Boxed<Value>), 0, flags, slots};
    type_ = give(Ref::checked(PyType_FromSpec(&spec)));
    Boxed<Value>::type = reinterpret_cast<PyTypeObject*>(Py_NewRef(type_.ptr()));
    module.add_object(Boxed<Value>::type->tp_name + sizeof("partax._core"), type_);
  }

  template <typename Function, typename... Extra>
  BoxedClass& def(const char* name, Function&& function, const Extra&... extra) {
    type_.attr(name) = pybind11::cpp_function(std::forward<Function>(function), pybind11::name(name),
                                              pybind11::is_method(type_), extra...);
    return *this;
  }

  template <typename Getter>
  BoxedClass& def_property(const char* name, Getter&& getter) {
    const pybind11::cpp_function function(std::forward<Getter>(getter), pybind11::is_method(type_));
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
    if (Py_TYPE(source.ptr()) != partax::Boxed<Value>::type) return false;
    value_ = reinterpret_cast<partax::Boxed<Value>*>(source.ptr())->value;
    return true;
  }
  operator Value*() noexcept { return value_; }
  operator Value&() noexcept { return *value_; }

 private:
  Value* value_ = nullptr;
};

}  // namespace pybind11::detail
