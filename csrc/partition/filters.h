// The filters of a user, compiled: predicates, bools, types, paths, combinations, prefix trees.
#pragma once

#include <vector>

#include "base/hooks.h"
#include "types/predicates.h"

namespace partax {

struct Filter {
  enum class Op : std::uint8_t { kBool, kBuiltin, kCallable, kType, kPath, kAny, kAll, kNot, kPrefix };

  Op op = Op::kBool;
  bool value = false;                         // kBool
  Predicate predicate = Predicate::kIsArray;  // kBuiltin
  Ref object;                                 // kCallable, kType: itself; kPath: its description; kPrefix: the tree
  std::vector<Filter> members;                // kAny, kAll, kNot
  bool has_types = false;                     // a type or a prefix tree in it, which may take whole subtrees
};

// Raises the WalkError of a filter for which this thread's stack has no room.
[[noreturn]] void refuse_nested_filter();
// Raises WalkError for what is not a filter. A pytree node becomes a kPrefix, whose leaves are read where they apply.
Filter read_filter(PyObject* object, int depth = 0);

// Whether a node in a prefix tree is one filter: a tuple of types, or a method of a pytree.
bool is_filter_leaf(PyObject* object);

// Whether a predicate or a type takes a leaf, or a type a node.
bool matches(const Filter& filter, PyObject* object);

}  // namespace partax
