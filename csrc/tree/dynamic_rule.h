// Which leaves beside arrays are traced: filter_jit's option `trace`.
#pragma once

#include "base/python_api.h"
#include "classes/predicates.h"
#include "classes/type_table.h"

namespace partax {

class DynamicRule {
 public:
  DynamicRule() noexcept = default;  // arrays alone
  // From None, a predicate on leaves, or a tuple of names of arguments.
  explicit DynamicRule(PyObject* option);

  bool any() const noexcept { return kind_ != Kind::kArrays; }
  // For each of `count` values of a call, whether the rule applies to it; `shape` is their `shape_data`.
  std::vector<bool> values(std::size_t count, const Ref& shape) const;
  // Whether a leaf is traced that is no array. Raises a WalkError.
  bool holds(PyObject* leaf) const;
  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(predicate_.get());
    Py_VISIT(names_.get());
    return 0;
  }

 private:
  enum class Kind : std::uint8_t { kArrays, kNative, kPython };

  Kind kind_ = Kind::kArrays;
  Predicate native_ = Predicate::kIsArrayLike;
  Ref predicate_;
  Ref names_;  // of the values that it applies to; empty if to all
};

}  // namespace partax
