// What a user gives to say which leaves to take: predicates, bools, types, paths, combinations, prefix trees of these.
#pragma once

#include <memory>

#include "base/hooks.h"
#include "base/predicates.h"
#include "partition/path_glob.h"

namespace partax {

// The class of filters that are described: partax._partition.filters.Filter.
inline Kept described_filter;

struct Filter;
using FilterPtr = std::shared_ptr<const Filter>;

struct Filter {
  enum class Op : std::uint8_t { kBool, kBuiltin, kCallable, kType, kGlob, kRegex, kAny, kAll, kNot, kPrefix };

  Op op = Op::kBool;
  bool value = false;                         // kBool
  Predicate predicate = Predicate::kIsArray;  // kBuiltin
  Ref object;                                 // kCallable: itself; kRegex: its `search`; kPrefix: the tree
  std::vector<Ref> types;                     // kType
  std::shared_ptr<const PathGlob> glob;       // kGlob
  std::size_t atom = 0;                       // kType, kGlob: a number of its own
  std::vector<FilterPtr> members;             // kAny, kAll, kNot
  bool has_prefix = false;                    // itself or a member is a prefix tree
};

// Reads filters, and numbers their types and globs.
class FilterReader {
 public:
  // Raises WalkError for what is no filter. A pytree node becomes a kPrefix, whose leaves are read when they are met.
  FilterPtr read(PyObject* filter);
  std::size_t num_atoms() const noexcept { return num_atoms_; }

 private:
  bool read_type(PyObject* object, Filter& filter);
  void read_described(PyObject* object, Filter& filter);

  std::size_t num_atoms_ = 0;
  int depth_ = 0;
};

// isinstance(object, type), without Python where the type's metaclass does not override it. `by_type` is cleared where
// another object of the same type might give another answer.
bool is_instance(PyObject* object, PyObject* type, bool& by_type);

}  // namespace partax
