// Which part the leaves of each type go to, as far as the type alone decides: remembered while one tree is split.
#pragma once

#include <array>

#include "base/python_api.h"
#include "classes/predicates.h"
#include "classes/type_lookup.h"

namespace partax {

class PartsByType {
 public:
  // What a part was decided under; under another it is decided anew.
  struct Scope {
    std::size_t filters = 0;     // the serial of the set of filters,
    std::size_t parent = 0;      // that of the parent, where paths count,
    std::size_t registered = 0;  // how much was registered with abstract classes, where one is asked,
    unsigned version = 0;        // and the version of the type; with 0 nothing is remembered
    bool operator==(const Scope& other) const noexcept {
      return filters == other.filters && parent == other.parent && registered == other.registered &&
             version == other.version;
    }
  };

  // The part of the object, or null where it has to be decided.
  const std::uint32_t* find(PyObject* object, const Scope& scope) const {
    const Entry& entry = entries_[place_of(object)];
    const bool is_such = entry.type.get() == reinterpret_cast<PyObject*>(Py_TYPE(object)) && entry.scope == scope;
    if (!is_such || scope.version == 0) return nullptr;
    if (entry.reach == Reach::kTypeUnlessConvertible && optional_attribute(object, array_conversion_name())) {
      return nullptr;
    }
    return &entry.part;
  }
  // Of two types that have one place the latter is known.
  void remember(PyObject* object, const Scope& scope, Reach reach, std::uint32_t part) {
    if (reach == Reach::kObject || scope.version == 0) return;
    entries_[place_of(object)] = Entry{Ref::borrow(reinterpret_cast<PyObject*>(Py_TYPE(object))), scope, reach, part};
  }

 private:
  struct Entry {
    Ref type;
    Scope scope;
    Reach reach = Reach::kType;
    std::uint32_t part = 0;
  };

  static std::size_t place_of(PyObject* object) noexcept {
    return (reinterpret_cast<std::uintptr_t>(Py_TYPE(object)) >> 4) % kPlaces;
  }

  static constexpr std::size_t kPlaces = 61;
  std::array<Entry, kPlaces> entries_;
};

}  // namespace partax
