// How a static value is compared: its form, the items of a composite one, what == of a plain one means, and the hash.
#pragma once

#include "base/error_path.h"
#include "base/owned_reads.h"
#include "static_key/callable_parts.h"
#include "types/type_table.h"

namespace partax {

// What to do with a value without a hash: aux data of registered nodes is compared only.
enum class Unhashable : std::uint8_t { kRefuse, kCompare };

enum class Form : std::uint8_t {
  kIdentity,
  kAtom,  // built-in value types with a == of their own that runs no user code
  kFloat,
  kComplex,
  kCallable,  // by identity, or a re-created one by what its code can read
  kArray,     // refused
  kGeneric,
  // The composite ones, which have items; the first four can be changed.
  kByteArray,
  kList,
  kDict,
  kSet,
  kFrozenSet,
  kNumpyScalar,
  kTuple,
  kSlice,  // a slice or a range, by what it shows: == of ranges is that of their elements
  kFrozenDataclass,
};
Form form_of(PyObject* value);

// Raises a WalkError where static values nest so deep that the stack has no room.
void check_depth();

// An immutable built-in type whose == is exact except for the bits of floats.
inline bool is_plain(PyObject* value) noexcept {
  PyTypeObject* const type = Py_TYPE(value);
  return value == Py_None || type == &PyUnicode_Type || type == &PyLong_Type || type == &PyBool_Type ||
         type == &PyFloat_Type || type == &PyComplex_Type || type == &PyBytes_Type || type == &PyEllipsis_Type;
}

inline bool is_composite(Form form) noexcept { return form >= Form::kByteArray; }
inline bool is_mutable_form(Form form) noexcept { return form >= Form::kByteArray && form <= Form::kSet; }

// Visits the keys and values of a dict or a subclass.
template <typename Visit>
void each_entry(PyObject* dict, Visit&& visit) {
  if (!PyDict_CheckExact(dict)) {
    const Ref items = Ref::checked(PyMapping_Items(dict));
    for (PyObject* both : Items(items.get())) visit(item_of(both, 0), item_of(both, 1));
    return;
  }
  const Py_ssize_t size = PyDict_GET_SIZE(dict);  // user code may add to it
  Py_ssize_t at = 0;
  while (PyDict_GET_SIZE(dict) == size) {
    const auto [key, item] = next_entry(dict, at);
    if (!key) return;
    visit(key, item);
  }
}

// Visits the items of a composite value; an absent field is an empty reference. Errors get the item's place. `visit`
// may run code that changes the value: each step looks at its size again.
template <typename Visit>
void each_item(PyObject* value, Form form, Visit&& visit) {
  const auto located = [&](const Ref& item, auto&& segment) { below(segment, [&] { visit(item); }); };
  switch (form) {
    case Form::kTuple:
    case Form::kList: {
      Py_ssize_t i = 0;
      for (Ref item = item_of(value, i); item; item = item_of(value, ++i))
        located(item, [&] { return index_segment(i); });
      break;
    }
    case Form::kDict:
      if (hooks.default_dict.is(Py_TYPE(value))) {
        static Name factory("default_factory");
        located(attribute(value, factory), [] { return std::string(".default_factory"); });
      }
      each_entry(value, [&](const Ref& key, const Ref& item) {
        const auto segment = [&] { return key_segment(key.get()); };
        located(key, segment);
        located(item, segment);
      });
      break;
    case Form::kSet:
    case Form::kFrozenSet: {
      const Ref items = Ref::checked(PySequence_List(value));
      for (PyObject* item : Items(items.get())) located(Ref::borrow(item), [] { return std::string("{...}"); });
      break;
    }
    case Form::kNumpyScalar:
      visit(attribute(value, "dtype"));
      visit(Ref::checked(PyObject_CallMethod(value, "tobytes", nullptr)));
      break;
    case Form::kByteArray:
      visit(Ref::checked(PyBytes_FromObject(value)));
      break;
    case Form::kSlice:
      for (const char* name : {"start", "stop", "step"}) {
        located(attribute(value, name), [&] { return std::string(".") + name; });
      }
      break;
    case Form::kFrozenDataclass: {
      const TypeInfoPtr info = TypeTable::instance().shared(TypeTable::instance().find(value));
      if (!info->traits.compared) break;
      for (const Ref& name : *info->traits.compared) {
        located(optional_attribute(value, name.get()), [&] { return attribute_segment(name.get()); });
      }
      break;
    }
    default:
      break;
  }
}

[[noreturn]] void refuse_array(PyObject* value);
// The hash that the value's own type gives; -1 if it has none and `unhashable` allows it.
Py_hash_t own_hash(PyObject* value, Unhashable unhashable);

// == of two objects of one type that is not composite. `hash` is that of `left`, or -1 if it has none.
bool equal_atoms(PyObject* left, PyObject* right, Form form, Py_hash_t hash);

inline constexpr const char* kComparing = "comparing or hashing the static value";

// How callables are compared: by what they hold and read, or by identity.
enum class Callables : std::uint8_t { kByStructure, kByIdentity };

inline std::size_t mix(std::size_t seed, std::size_t value) noexcept {
  return (seed ^ value) * 0x9E3779B97F4A7C15ull + (seed >> 31);
}

// Agrees with StaticValue::equals. Raises WalkError for values that cannot be static.
std::size_t static_hash(PyObject* value, Unhashable unhashable, Callables callables = Callables::kByStructure);

// A copy of a mutable built-in container, or of a tuple that holds one, down to its atoms; else the value itself.
Ref copied(PyObject* value);
bool holds_mutable(PyObject* value);

}  // namespace partax
