// What a user gives to say which leaves to take, compiled: predicates, bools, types, paths, combinations, prefix trees.
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "base/hooks.h"
#include "classes/predicates.h"

namespace partax {

// The class of filters that are described: partax._pytree.filters.Filter.
inline ImmortalRef described_filter;

// isinstance with a class or a union on the right, without a call of Python where the class of the object decides.
class ClassTest {
 public:
  // What the metaclass makes of isinstance is read here, once.
  explicit ClassTest(PyObject* asked);
  // isinstance(object, asked); `reach` is limited to how far the answer goes.
  bool holds(PyObject* object, Reach& reach) const;

 private:
  enum class How : std::uint8_t { kPlain, kJaxArray, kAbstract, kAsk };

  Ref asked_;
  How how_ = How::kAsk;
};

// A predicate of Equinox: what its answer depends on in addition to the class of the leaf.
struct AsksMore {
  bool dtype = false, conversion = false;
};

struct Filter {
  enum class Op : std::uint8_t { kBool, kBuiltin, kCallable, kType, kPath, kAny, kAll, kNot, kPrefix };

  Op op = Op::kBool;
  bool value = false;                         // kBool
  Predicate predicate = Predicate::kIsArray;  // kBuiltin
  Ref object;                                 // kCallable: itself; kPath: its description; kPrefix: the tree
  std::optional<AsksMore> equinox;            // kCallable
  std::vector<ClassTest> types;               // kType
  std::vector<Filter> members;                // kAny, kAll, kNot
  bool has_types = false;                     // a type or a prefix tree in it, which may take whole subtrees
};

// Raises the WalkError of a filter for which this thread's stack has no room.
[[noreturn]] void refuse_nested_filter();
// Raises WalkError for what is not a filter. A pytree node becomes a kPrefix, whose leaves are read where they apply.
Filter read_filter(PyObject* object, int depth = 0);

// What one predicate or type says of a leaf, asked once for each type of leaf where the type decides.
class AnswersByType {
 public:
  explicit AnswersByType(const Filter& filter) : filter_(filter) {}
  bool holds(PyObject* object) {
    Answer& answer = answers_[(reinterpret_cast<std::uintptr_t>(Py_TYPE(object)) >> 4) % answers_.size()];
    const bool is_remembered = answer.type == Py_TYPE(object) &&
                               (answer.reach == Reach::kType || !optional_attribute(object, array_conversion_name()));
    return is_remembered ? answer.holds : ask(object, answer);
  }

 private:
  struct Answer {
    const PyTypeObject* type = nullptr;  // alive while its leaves are
    Reach reach = Reach::kType;
    bool holds = false;
  };

  bool ask(PyObject* object, Answer& answer);

  const Filter& filter_;
  std::array<Answer, 61> answers_;  // of two types in one place the latter
};

}  // namespace partax
