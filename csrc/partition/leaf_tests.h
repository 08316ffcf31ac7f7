// What is asked of a leaf, with an answer that needs no call of Python where its class tells all: isinstance with a
// class on the right, and Equinox's predicates, which are Python functions.
#pragma once

#include <memory>
#include <optional>
#include <vector>

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

struct KnownFunction {
  std::vector<ClassTest> classes;
  bool takes_instances = false;  // it is true of all instances of these; else it is asked about each
  bool asks_conversion = false;  // it is asked about what has `__jax_array__`; it is false of all else

  // Its answer, where the type of the object or its instance dictionary alone decides; `reach` is limited to how far
  // that goes. Runs no code of users.
  std::optional<bool> answer(PyObject* object, Reach& reach) const;
};

// What is known of a function; null of one that is not Equinox's own.
std::shared_ptr<const KnownFunction> known_function(PyObject* function);

}  // namespace partax
