#include "tree/dynamic_rule.h"

#include "base/error_path.h"

namespace partax {

DynamicRule::DynamicRule(PyObject* option) {
  if (option == Py_None) return;
  if (PyTuple_Check(option)) {
    kind_ = Kind::kNative;
    names_ = Ref::borrow(option);
    return;
  }
  const int native = predicate_of(option);
  kind_ = native < 0 ? Kind::kPython : Kind::kNative;
  if (native >= 0) native_ = static_cast<Predicate>(native);
  predicate_ = Ref::borrow(option);
}

bool DynamicRule::holds(PyObject* leaf) const {
  switch (kind_) {
    case Kind::kArrays:
      return false;
    case Kind::kNative:
      return partax::holds(native_, leaf);
    case Kind::kPython:
      break;
  }
  if (!is_truthy(predicate_.get(), leaf, "asking `trace` about")) return false;
  if (!partax::holds(Predicate::kIsArrayLike, leaf)) {
    throw WalkError::diagnosed(PyExc_TypeError, "found a `" + type_name(leaf) +
                                                    "` that `trace` asks to trace, expected an array or a number; make "
                                                    "the predicate False for it");
  }
  return true;
}

}  // namespace partax
