// How a static value is compared: its form, the items of a composite one, and what == of a plain one means.
#pragma once

#include <cstring>

#include "node_kind.h"
#include "python_api.h"
#include "tree_path.h"

namespace partax {

// What to do with a value that has no hash: refuse it, or (aux data of registered nodes) compare it only.
enum class Unhashable : std::uint8_t { kRefuse, kCompare };

enum class Form : std::uint8_t {
  kIdentity,
  kAtom,  // built-in value types with a == of their own that runs no user code
  kFloat,
  kComplex,
  kNumpyScalar,
  kTuple,
  kFrozenSet,
  kList,
  kDict,
  kSet,
  kByteArray,
  kMethod,
  kFrozenDataclass,
  kTreedef,
  kCallable,  // by identity or by structure: see callable_value.h
  kArray,     // refused
  kGeneric,
};
Form form_of(PyObject* value);

// Counts how deep static values nest; raises a WalkError where they nest too deeply.
class DepthGuard {
 public:
  DepthGuard();
  ~DepthGuard();
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;
};

inline bool is_composite(Form form) noexcept {
  switch (form) {
    case Form::kTuple:
    case Form::kFrozenSet:
    case Form::kList:
    case Form::kDict:
    case Form::kSet:
    case Form::kMethod:
    case Form::kFrozenDataclass:
      return true;
    default:
      return false;
  }
}

inline bool is_unordered(Form form) noexcept { return form == Form::kSet || form == Form::kFrozenSet; }

inline bool is_mutable_form(Form form) noexcept {
  return form == Form::kList || form == Form::kDict || form == Form::kSet || form == Form::kByteArray;
}

// The attribute of a frozen dataclass, or empty where the instance lacks it.
Ref field(PyObject* value, PyObject* name);

// Visits the items of a composite value; an absent field is an empty reference. Errors get the item's place.
template <typename Visit>
void each_item(PyObject* value, Form form, Visit&& visit) {
  const auto located = [&](const Ref& item, auto&& segment) {
    try {
      visit(item);
    } catch (WalkError& error) {
      error.prepend(segment());
      throw;
    }
  };
  switch (form) {
    case Form::kTuple:
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); ++i) {
        located(Ref::borrow(PyTuple_GET_ITEM(value, i)), [&] { return index_segment(i); });
      }
      break;
    case Form::kList:
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(value); ++i) {
        located(Ref::borrow(PyList_GET_ITEM(value, i)), [&] { return index_segment(i); });
      }
      break;
    case Form::kDict: {
      Ref items = Ref::checked(PyDict_Items(value));
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); ++i) {
        PyObject* pair = PyList_GET_ITEM(items.get(), i);
        const auto segment = [&] { return key_segment(PyTuple_GET_ITEM(pair, 0)); };
        located(Ref::borrow(PyTuple_GET_ITEM(pair, 0)), segment);
        located(Ref::borrow(PyTuple_GET_ITEM(pair, 1)), segment);
      }
      break;
    }
    case Form::kSet:
    case Form::kFrozenSet: {
      Ref items = Ref::checked(PySequence_List(value));
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); ++i) {
        located(Ref::borrow(PyList_GET_ITEM(items.get(), i)), [] { return std::string("{...}"); });
      }
      break;
    }
    case Form::kMethod:
      visit(Ref::borrow(PyMethod_GET_FUNCTION(value)));
      located(Ref::borrow(PyMethod_GET_SELF(value)), [] { return std::string(".__self__"); });
      break;
    case Form::kFrozenDataclass: {
      const TypeInfoPtr info = TypeTable::instance().shared(TypeTable::instance().find(value));
      for (const Ref& name : info->frozen_fields) {
        located(field(value, name.get()), [&] { return attribute_segment(name.get()); });
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
Ref numpy_bytes(PyObject* scalar);

// == of two objects of one type that is not composite. `hash` is that of `left`, or -1 if it has none.
bool equal_atoms(PyObject* left, PyObject* right, Form form, Py_hash_t hash);

// A copy of a mutable built-in container, or of a tuple or frozen dataclass that holds such; else the value itself.
// Subclasses are left as they are: their copy() need not keep the type.
Ref copied(PyObject* value);
bool holds_mutable(PyObject* value);

}  // namespace partax
