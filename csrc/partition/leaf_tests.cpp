#include "partition/leaf_tests.h"

#include <algorithm>

#include "base/error_path.h"
#include "base/owned_reads.h"
#include "base/python_hooks.h"
#include "classes/predicates.h"
#include "classes/type_table.h"

namespace partax {
namespace {

bool is_of_equinox(PyObject* function) {
  static Name name("__name__");
  const Ref module = dict_item(PyFunction_GET_GLOBALS(function), name.get());
  return module && PyUnicode_Check(module.get()) &&
         PyUnicode_CompareWithASCIIString(module.get(), "equinox._filters") == 0;
}

}  // namespace

ClassTest::ClassTest(PyObject* asked) : asked_(Ref::borrow(asked)) {
  static Name name("__instancecheck__");
  if (!PyType_Check(asked)) return;
  if (asked == hooks().jax_array.get()) {
    how_ = How::kJaxArray;
  } else if (on_type(Py_TYPE(asked), name.get()).get() == on_type(&PyType_Type, name.get()).get()) {
    how_ = How::kPlain;
  }
}

bool ClassTest::holds(PyObject* object, Reach& reach) const {
  PyTypeObject* type = Py_TYPE(object);
  if (how_ == How::kPlain && PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(asked_.get())) != 0) return true;
  const bool by_type = how_ != How::kAsk && tells_its_class(type);
  if (how_ == How::kPlain && by_type) return false;
  if (how_ == How::kJaxArray && by_type) {
    const LeafSort sort = TypeTable::instance().find(object).sort;
    if (sort != LeafSort::kTracer) return sort == LeafSort::kJaxArray;
  }
  limit(reach, Reach::kObject);
  const int answer = PyObject_IsInstance(object, asked_.get());
  if (answer < 0) throw WalkError::from_user_code("asking isinstance about");
  return answer == 1;
}

std::optional<bool> KnownFunction::answer(PyObject* object, Reach& reach) const {
  if (!tells_its_class(Py_TYPE(object))) return std::nullopt;
  Reach limited = reach;
  const auto is_of = [&](const ClassTest& test) { return test.holds(object, limited); };
  const bool is_instance = std::any_of(classes.begin(), classes.end(), is_of);
  if (is_instance && !takes_instances) return std::nullopt;
  if (!is_instance && asks_conversion && !plainly_converts_not(object, limited)) return std::nullopt;
  reach = limited;
  return is_instance;
}

std::shared_ptr<const KnownFunction> known_function(PyObject* function) {
  if (!PyFunction_Check(function) || !is_of_equinox(function)) return nullptr;
  const Ref answers = python::equinox_answers(function);
  if (answers.get() == Py_None) return nullptr;
  PyObject* classes = nullptr;
  int takes = 0, asks = 0;
  parse_tuple(answers.get(), "O!pp", &PyTuple_Type, &classes, &takes, &asks);
  auto known = std::make_shared<KnownFunction>();
  known->takes_instances = takes != 0;
  known->asks_conversion = asks != 0;
  for (PyObject* cls : Items(classes)) {
    known->classes.emplace_back(cls);
    if (!known->classes.back().is_plain()) return nullptr;
  }
  return known;
}

}  // namespace partax
