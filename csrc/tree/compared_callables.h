// The callables of a call that stand in several places of its key, and have been compared in one of them: an activation
// of many layers is the same in each.
#pragma once

#include "tree/tree_spec.h"

namespace partax {

class ComparedCallables {
 public:
  explicit ComparedCallables(const TreeSpec& spec) noexcept
      : twins_(spec.twins.empty() ? nullptr : spec.twins.data()) {}

  // Whether this is the key's own callable, compared in another place of this call: once is enough.
  bool hold(std::size_t index, PyObject* object) const noexcept {
    if (count_ == 0 || twins_[index] == TreeSpec::kNoTwin) return false;
    for (std::size_t i = 0; i < count_; ++i) {
      if (known_[i].twin == twins_[index]) return known_[i].callable.get() == object;
    }
    return false;
  }
  // The key's own static value was found to be as it was.
  void note(std::size_t index, PyObject* object) noexcept {
    if (twins_ == nullptr || twins_[index] == TreeSpec::kNoTwin || count_ == kMost) return;
    known_[count_].twin = twins_[index];
    known_[count_++].callable = Ref::borrow(object);
  }

 private:
  static constexpr std::size_t kMost = 8;
  struct Known {
    std::uint32_t twin;
    Ref callable;
  };

  const std::uint32_t* twins_;
  std::size_t count_ = 0;
  Known known_[kMost];
};

}  // namespace partax
