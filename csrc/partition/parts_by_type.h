// Which part the leaves of each type go to, as far as the type alone decides: remembered while one tree is split.
#pragma once

#include "base/python_api.h"
#include "base/type_lookup.h"

namespace partax {

class PartsByType {
 public:
  // What a part was decided under; under another it is decided anew.
  struct Scope {
    std::size_t filters = 0;      // the serial of the set of filters,
    std::size_t parent = 0;       // and of the parent, where paths count
    std::uint64_t abc_token = 0;  // where abstract classes count
    unsigned version = 0;         // of the type; with 0 nothing is remembered
    bool operator==(const Scope& other) const noexcept {
      return filters == other.filters && parent == other.parent && abc_token == other.abc_token &&
             version == other.version;
    }
  };

  // The part of the object, or null where it has to be decided.
  const std::uint32_t* find(PyObject* object, const Scope& scope) const;
  void remember(PyObject* object, const Scope& scope, Reach reach, std::uint32_t part);

 private:
  struct Entry {
    Ref type;  // empty: free
    Scope scope;
    Reach reach = Reach::kType;
    std::uint32_t part = 0;
  };

  // Where the type is, or would be.
  std::size_t position(const PyTypeObject* type) const noexcept;
  void grow();

  std::vector<Entry> entries_;  // a power of two of them, at least half of them free
  std::size_t count_ = 0;
};

}  // namespace partax
