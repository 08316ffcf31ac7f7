// isinstance with a class on the right; asked of Python only where the class or the object may have its own answer.
#pragma once

#include "base/python_api.h"
#include "classes/type_lookup.h"

namespace partax {

class ClassTest {
 public:
  // `asked` is a class or a union. What its metaclass makes of isinstance is read here, once.
  explicit ClassTest(PyObject* asked);

  // isinstance(object, asked); `reach` is limited to how far the answer goes.
  bool holds(PyObject* object, Reach& reach) const;
  // Whether the answer for an object that tells its class runs no code of users.
  bool is_plain() const noexcept { return how_ != How::kAsk; }

 private:
  enum class How : std::uint8_t { kPlain, kJaxArray, kAsk };

  Ref asked_;
  How how_ = How::kAsk;
};

}  // namespace partax
