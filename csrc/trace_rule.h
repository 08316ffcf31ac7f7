// Which leaves beside arrays are traced: filter_jit's option `trace`.
#pragma once

#include "predicates.h"
#include "python_api.h"

namespace partax {

class TraceRule {
 public:
  TraceRule() noexcept = default;  // arrays alone
  // From None, a predicate on leaves, or a tuple of names of arguments.
  explicit TraceRule(PyObject* option);

  bool any() const noexcept { return kind_ != Kind::kArrays; }
  // For each value of a call, given all names by which options may mean it, whether the rule applies to it.
  std::vector<bool> values(const std::vector<std::vector<std::string>>& names) const;
  // Whether a leaf is traced that is no array. Raises a WalkError.
  bool holds(PyObject* leaf) const;

 private:
  enum class Kind : std::uint8_t { kArrays, kNative, kPython };

  Kind kind_ = Kind::kArrays;
  Predicate native_ = Predicate::kIsArrayLike;
  Ref predicate_;
  bool by_name_ = false;
  std::vector<std::string> names_;
};

}  // namespace partax
