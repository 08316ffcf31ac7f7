// The only include of Python.h: owning references, checked calls, error plumbing. pybind11 is for registrations alone,
// since it would take most of the time that each file needs to compile.
//
// The caller of any function in csrc/ must have the GIL, or the turn, and hold references to what it passes. User code,
// an allocation of a Python object and most calls of Python may switch threads and change any table or container: what
// was read before is held by a reference, or read again after. Any allocation may fail.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#if (PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x03100000) && !defined(PARTAX_UNTRIED_PYTHON)
#error "partax reads structures of CPython 3.11 to 3.15; it has been tried with no other (PARTAX_UNTRIED_PYTHON tries)"
#endif

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/turn.h"

namespace partax {

// Thrown while a Python exception is set; unwinds C++ frames to the nearest boundary.
struct PythonError {};

// An owned reference. Releasing swaps to null first, so a destructor that re-enters sees no dangling pointer. Letting
// go of the last one may run any Python code: the caller must not be in the middle of a change to a container.
class Ref {
 public:
  Ref() noexcept = default;
  Ref(const Ref& other) noexcept : object_(other.object_) { Py_XINCREF(object_); }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }

  static Ref steal(PyObject* object) noexcept {
    Ref ref;
    ref.object_ = object;
    return ref;
  }
  static Ref borrow(PyObject* object) noexcept {
    Py_XINCREF(object);
    return steal(object);
  }
  // Takes over the result of a C API call; null means that it raised.
  static Ref checked(PyObject* object) {
    if (object == nullptr) throw PythonError{};
    return steal(object);
  }

  PyObject* get() const noexcept { return object_; }
  PyObject* release() noexcept { return std::exchange(object_, nullptr); }
  void reset() noexcept { Ref().swap(*this); }
  void swap(Ref& other) noexcept { std::swap(object_, other.object_); }
  explicit operator bool() const noexcept { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

// A tuple or a list of these. Items that run code of users are made before it: an incomplete one can be found by the
// collector.
inline PyObject* new_reference(Ref& item) noexcept { return item.release(); }
inline PyObject* new_reference(PyObject* item) noexcept { return Py_NewRef(item); }
template <typename Item>
Ref tuple_of(Item* items, std::size_t count) {
  Ref tuple = Ref::checked(PyTuple_New(static_cast<Py_ssize_t>(count)));
  for (std::size_t i = 0; i < count; ++i) {
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), new_reference(items[i]));
  }
  return tuple;
}
// Not through a tuple, which CPython 3.11 leaks if it cannot allocate the list's items.
template <typename Item>
Ref list_of(Item* items, std::size_t count) {
  Ref list = Ref::checked(PyList_New(static_cast<Py_ssize_t>(count)));
  for (std::size_t i = 0; i < count; ++i) {
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), new_reference(items[i]));
  }
  return list;
}
inline Ref tuple_of(std::vector<Ref> items) { return tuple_of(items.data(), items.size()); }
inline Ref list_of(std::vector<Ref> items) { return list_of(items.data(), items.size()); }

template <typename... Parts>
[[noreturn]] void raise_error(PyObject* type, const char* format, Parts... parts) {
  PyErr_Format(type, format, parts...);
  throw PythonError{};
}

inline Ref number(std::size_t value) { return Ref::checked(PyLong_FromSize_t(value)); }
inline std::size_t size_of_number(PyObject* number) {
  const std::size_t size = PyLong_AsSize_t(number);
  if (PyErr_Occurred() != nullptr) throw PythonError{};
  return size;
}

template <typename Numbers>
Ref tuple_of_numbers(const Numbers& numbers) {
  std::vector<Ref> items;
  items.reserve(numbers.size());
  for (const auto each : numbers) items.push_back(number(each));
  return tuple_of(std::move(items));
}

// The items of a tuple, or of a list that no other code has, for a range-based loop.
class Items {
 public:
  explicit Items(PyObject* sequence) noexcept
      : begin_(PySequence_Fast_ITEMS(sequence)), end_(begin_ + PySequence_Fast_GET_SIZE(sequence)) {}
  PyObject* const* begin() const noexcept { return begin_; }
  PyObject* const* end() const noexcept { return end_; }
  std::size_t size() const noexcept { return static_cast<std::size_t>(end_ - begin_); }

 private:
  PyObject* const* begin_;
  PyObject* const* end_;
};

inline int checked_int(int status) {
  if (status < 0) throw PythonError{};
  return status;
}

// The exception that is set now, taken out of the interpreter.
inline Ref take_exception() noexcept {
#if PY_VERSION_HEX >= 0x030C0000
  return Ref::steal(PyErr_GetRaisedException());
#else
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback != nullptr) PyException_SetTraceback(value, traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  return Ref::steal(value);
#endif
}

inline void restore_exception(Ref exception) noexcept {
#if PY_VERSION_HEX >= 0x030C0000
  PyErr_SetRaisedException(exception.release());
#else
  PyObject* value = exception.release();
  auto* type = reinterpret_cast<PyObject*>(Py_TYPE(value));
  Py_INCREF(type);
  PyErr_Restore(type, value, PyException_GetTraceback(value));
#endif
}

// Turns the C++ exception in flight into a Python one: the catch-all of every slot.
void set_python_error() noexcept;

// Runs `body` in a C slot, each of which has one around it: it has the turn, and no C++ exception leaves it.
template <typename Result, typename Body>
Result guarded(Result on_error, Body&& body) noexcept {
  const Turn turn;
  try {
    return body();
  } catch (...) {
    set_python_error();
    return on_error;
  }
}

// Whether an exception, or its type, has to reach the user: memory is short, or an interrupt.
inline bool must_pass(PyObject* exception) noexcept {
  return PyErr_GivenExceptionMatches(exception, PyExc_Exception) == 0 ||
         PyErr_GivenExceptionMatches(exception, PyExc_MemoryError) != 0;
}

// Clears the exception that is set, if any, unless it must pass.
inline void forgive() {
  PyObject* const exception = PyErr_Occurred();
  if (exception == nullptr) return;
  if (must_pass(exception)) throw PythonError{};
  PyErr_Clear();
}

// The text of a str and back, exactly: lone surrogates too.
inline std::string exact_text(PyObject* text) {
  Py_ssize_t size = 0;
  const char* utf8 = PyUnicode_AsUTF8AndSize(text, &size);
  if (utf8 != nullptr) return {utf8, static_cast<std::size_t>(size)};
  forgive();
  const Ref bytes = Ref::checked(PyUnicode_AsEncodedString(text, "utf-8", "surrogatepass"));
  return {PyBytes_AS_STRING(bytes.get()), static_cast<std::size_t>(PyBytes_GET_SIZE(bytes.get()))};
}
inline Ref exact_unicode(const std::string& text) {
  return Ref::checked(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogatepass"));
}

inline Ref interned(PyObject* name) noexcept {
  Py_INCREF(name);
  PyUnicode_InternInPlace(&name);
  return Ref::steal(name);
}

// A name that is interned once: a static where it stands, for what a hit asks for.
class Name {
 public:
  explicit constexpr Name(const char* text) noexcept : text_(text) {}
  PyObject* get() {
    if (interned_ == nullptr) interned_ = Ref::checked(PyUnicode_InternFromString(text_)).release();
    return interned_;
  }

 private:
  const char* text_;
  PyObject* interned_ = nullptr;
};

inline PyObject* null_if_none(PyObject* object) noexcept { return object == Py_None ? nullptr : object; }
inline Ref or_none(const Ref& object) noexcept { return object ? object : Ref::borrow(Py_None); }
inline PyObject* truth(bool value) noexcept { return value ? Py_True : Py_False; }

// By identity, or else by `==`, which may run user code.
inline bool are_equal(PyObject* left, PyObject* right) {
  return left == right || checked_int(PyObject_RichCompareBool(left, right, Py_EQ)) == 1;
}

// The name is interned, unlike with PyObject_GetAttrString: CPython's cache of attributes would keep each other string.
inline Ref attribute(PyObject* object, const char* name) {
  const Ref interned = Ref::checked(PyUnicode_InternFromString(name));
  return Ref::checked(PyObject_GetAttr(object, interned.get()));
}
inline Ref attribute(PyObject* object, Name& name) { return Ref::checked(PyObject_GetAttr(object, name.get())); }

// Visits all arguments for a `tp_traverse`: references, values that have a `traverse` of their own, pointers that may
// be null, and ranges of these.
inline int visit_part(visitproc visit, void* arg, const Ref& part) { return part ? visit(part.get(), arg) : 0; }
template <typename Part>
auto visit_part(visitproc visit, void* arg, const Part& part) -> decltype(part.traverse(visit, arg)) {
  return part.traverse(visit, arg);
}
template <typename Pointer>
auto visit_part(visitproc visit, void* arg, const Pointer& part) -> decltype(part->traverse(visit, arg)) {
  return part ? part->traverse(visit, arg) : 0;
}
template <typename Range>
auto visit_part(visitproc visit, void* arg, const Range& parts) -> decltype(parts.begin(), 0) {
  for (const auto& part : parts) {
    if (const int status = visit_part(visit, arg, part)) return status;
  }
  return 0;
}
template <typename... Parts>
int visit_all(visitproc visit, void* arg, const Parts&... parts) {
  int status = 0;
  ((status = status != 0 ? status : visit_part(visit, arg, parts)), ...);
  return status;
}

inline std::string type_name(PyObject* object) { return Py_TYPE(object)->tp_name; }

// How deep trees and static values may nest before a RecursionError; far below what the C stack takes.
inline constexpr int kMaxDepth = 2000;

// Weak references: the target as a new reference, or empty when it is gone.
inline Ref weak_target(PyObject* weakref) noexcept {
#if PY_VERSION_HEX >= 0x030D0000
  PyObject* target = nullptr;
  if (PyWeakref_GetRef(weakref, &target) < 0) PyErr_Clear();
  return Ref::steal(target);
#else
  PyObject* target = PyWeakref_GET_OBJECT(weakref);
  return target == Py_None ? Ref() : Ref::borrow(target);
#endif
}

inline bool weakly_is(PyObject* weakref, PyObject* object) noexcept {
#ifdef Py_GIL_DISABLED
  return _Py_atomic_load_ptr(&reinterpret_cast<PyWeakReference*>(weakref)->wr_object) == object;
#elif PY_VERSION_HEX >= 0x030D0000
  return reinterpret_cast<PyWeakReference*>(weakref)->wr_object == object;
#else
  return object != Py_None && PyWeakref_GET_OBJECT(weakref) == object;  // a dead one gives None
#endif
}

}  // namespace partax
