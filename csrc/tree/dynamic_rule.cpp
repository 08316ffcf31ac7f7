#include "tree/dynamic_rule.h"

#include "base/error_path.h"
#include "base/python_hooks.h"

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

std::vector<bool> DynamicRule::values(std::size_t count, const Ref& shape) const {
  if (!names_) return std::vector<bool>(count, true);
  std::vector<bool> applies;
  const Ref meant = python::values_meant(names_, shape);
  for (PyObject* it : Items(meant.get())) applies.push_back(it == Py_True);
  return applies;
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
