#include "trace_rule.h"

#include <algorithm>

#include "tree_path.h"

namespace partax {

TraceRule::TraceRule(PyObject* option) {
  if (option == Py_None) return;
  if (PyTuple_Check(option)) {
    kind_ = Kind::kNative;
    by_name_ = true;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(option); ++i) {
      const char* name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(option, i));
      if (name == nullptr) throw PythonError{};
      names_.emplace_back(name);
    }
    return;
  }
  const int native = predicate_of(option);
  kind_ = native < 0 ? Kind::kPython : Kind::kNative;
  if (native >= 0) native_ = static_cast<Predicate>(native);
  predicate_ = Ref::borrow(option);
}

std::vector<bool> TraceRule::values(const std::vector<std::vector<std::string>>& names) const {
  std::vector<bool> applies(names.size(), any() && !by_name_);
  if (!by_name_) return applies;
  for (std::size_t i = 0; i < names.size(); ++i) {
    applies[i] = std::find_first_of(names[i].begin(), names[i].end(), names_.begin(), names_.end()) != names[i].end();
  }
  return applies;
}

bool TraceRule::holds(PyObject* leaf) const {
  switch (kind_) {
    case Kind::kArrays:
      return false;
    case Kind::kNative:
      return partax::holds(native_, leaf);
    case Kind::kPython:
      break;
  }
  const Ref answer = Ref::steal(PyObject_CallOneArg(predicate_.get(), leaf));
  const int truth = answer ? PyObject_IsTrue(answer.get()) : -1;
  if (truth < 0) throw WalkError::from_user_code("asking `trace` about");
  if (truth == 0) return false;
  if (!partax::holds(Predicate::kIsArrayLike, leaf)) {
    throw WalkError::diagnosed(PyExc_TypeError, "found a `" + type_name(leaf) +
                                                    "` that `trace` asks to trace, expected an array or a number; make "
                                                    "the predicate False for it");
  }
  return true;
}

}  // namespace partax
