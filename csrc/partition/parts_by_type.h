// Which part the leaves of each type go to, as far as the type alone decides: remembered while one tree is split.
#pragma once

#include "base/python_api.h"
#include "classes/predicates.h"
#include "classes/type_lookup.h"

namespace partax {

class PartsByType {
 public:
  // What a part was decided under; under another it is decided anew.
  struct Scope {
    std::size_t filters = 0;  // the serial of the set of filters,
    std::size_t parent = 0;   // and of the parent, where paths count
    unsigned version = 0;     // of the type; with 0 nothing is remembered
    bool operator==(const Scope& other) const noexcept {
      return filters == other.filters && parent == other.parent && version == other.version;
    }
  };

  // The part of the object, or null where it has to be decided.
  const std::uint32_t* find(PyObject* object, const Scope& scope) const {
    if (entries_.empty() || scope.version == 0) return nullptr;
    const Entry& entry = entries_[position(Py_TYPE(object))];
    if (!entry.type || !(entry.scope == scope)) return nullptr;
    if (entry.reach == Reach::kTypeUnlessConvertible && optional_attribute(object, array_conversion_name())) {
      return nullptr;
    }
    return &entry.part;
  }
  void remember(PyObject* object, const Scope& scope, Reach reach, std::uint32_t part);

 private:
  struct Entry {
    Ref type;  // empty: free
    Scope scope;
    Reach reach = Reach::kType;
    std::uint32_t part = 0;
  };

  // Where the type is, or would be.
  std::size_t position(const PyTypeObject* type) const noexcept {
    const std::size_t mask = entries_.size() - 1;
    const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(type));
    std::size_t at = static_cast<std::size_t>((address * 0x9E3779B97F4A7C15ull) >> 32) & mask;
    while (entries_[at].type && entries_[at].type.get() != reinterpret_cast<const PyObject*>(type))
      at = (at + 1) & mask;
    return at;
  }
  void grow();

  std::vector<Entry> entries_;  // a power of two of them, at least half of them free
  std::size_t count_ = 0;
};

}  // namespace partax
