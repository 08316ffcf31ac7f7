// pybind11's functions for the registrations, with PyObject*, Ref and our exceptions. Its classes are not used, since
// they crash where memory is short while an instance is made.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/type_caster_pyobject_ptr.h>

#include <stdexcept>

#include "base/boxed.h"
#include "base/error_path.h"

namespace partax {

// A function of the module, which has the turn while it runs.
template <typename Function, typename... Extra>
void define(pybind11::module_& module, const char* name, Function&& function, const Extra&... extra) {
  module.def(name, std::forward<Function>(function), pybind11::call_guard<Turn>(), extra...);
}

// pybind11 says that it could not make an object by a RuntimeError; Python's own exception is set and tells why.
inline void translate_exceptions() {
  pybind11::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const PythonError&) {
      set_python_error();
    } catch (const WalkError&) {
      set_python_error();
    } catch (const std::runtime_error&) {
      if (PyErr_Occurred() == nullptr) throw;
    }
  });
}

// Whether functions take this type by what boxes it: what tells the collector what it holds.
template <typename Value, typename = int>
struct IsBoxed : std::false_type {};
template <typename Value>
struct IsBoxed<Value, decltype(std::declval<const Value&>().traverse(visitproc(), nullptr))> : std::true_type {};

// The class of the objects around a `Value`, with some slots of its own.
template <typename Value>
class BoxedClass {
 public:
  BoxedClass(pybind11::module_& module, const char* name, const char* doc, std::vector<PyType_Slot> slots) {
    Boxed<Value>::type = add_boxed_type<Value>(module.ptr(), name, doc, std::move(slots));
    type_ = pybind11::reinterpret_borrow<pybind11::object>(reinterpret_cast<PyObject*>(Boxed<Value>::type));
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

template <>
class type_caster<partax::Ref> {
 public:
  static constexpr auto name = const_name("object");
  static handle cast(partax::Ref ref, return_value_policy, handle) { return ref.release(); }
};

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
