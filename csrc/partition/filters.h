// The filters of a user, compiled: predicates, bools, types, paths, combinations, prefix trees.
#pragma once

#include <array>
#include <vector>

#include "base/hooks.h"
#include "classes/predicates.h"

namespace partax {

struct Filter {
  enum class Op : std::uint8_t { kBool, kBuiltin, kCallable, kType, kPath, kAny, kAll, kNot, kPrefix };

  Op op = Op::kBool;
  bool value = false;                         // kBool
  Predicate predicate = Predicate::kIsArray;  // kBuiltin
  Ref object;                                 // kCallable, kType: itself; kPath: its description; kPrefix: the tree
  bool by_class = false;                      // kType: it depends on the class of a leaf alone, except for tracers
  std::vector<Filter> members;                // kAny, kAll, kNot
  bool has_types = false;                     // a type or a prefix tree in it, which may take whole subtrees
};

// Raises the WalkError of a filter for which this thread's stack has no room.
[[noreturn]] void refuse_nested_filter();
// Raises WalkError for what is not a filter. A pytree node becomes a kPrefix, whose leaves are read where they apply.
Filter read_filter(PyObject* object, int depth = 0);

// Whether a node in a prefix tree is one filter: a tuple of types, or a method of a pytree.
bool is_filter_leaf(PyObject* object);

// Asks a predicate or a type about leaves: a type once for each class of leaves, if the class decides.
class LeafTest {
 public:
  explicit LeafTest(const Filter& filter) : filter_(filter) {}
  bool holds(PyObject* object) {
    if (filter_.op == Filter::Op::kBuiltin) return partax::holds(filter_.predicate, object);
    Answer& answer = answers_[(reinterpret_cast<std::uintptr_t>(Py_TYPE(object)) >> 4) % answers_.size()];
    return answer.type == Py_TYPE(object) ? answer.holds : ask(object, answer);
  }

 private:
  struct Answer {
    const PyTypeObject* type = nullptr;  // alive while its leaves are
    bool holds = false;
  };

  bool ask(PyObject* object, Answer& answer);

  const Filter& filter_;
  std::array<Answer, 61> answers_;  // the later of two types at one index
};

}  // namespace partax
