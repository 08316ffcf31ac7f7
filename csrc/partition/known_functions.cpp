#include "partition/known_functions.h"

#include <algorithm>

#include "base/owned_reads.h"
#include "base/python_hooks.h"
#include "classes/predicates.h"

namespace partax {
namespace {

bool is_of_equinox(PyObject* function) {
  static Name name("__name__");
  const Ref module = dict_item(PyFunction_GET_GLOBALS(function), name.get());
  return module && PyUnicode_Check(module.get()) &&
         PyUnicode_CompareWithASCIIString(module.get(), "equinox._filters") == 0;
}

}  // namespace

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
  if (PyArg_ParseTuple(answers.get(), "O!pp", &PyTuple_Type, &classes, &takes, &asks) == 0) throw PythonError{};
  auto known = std::make_shared<KnownFunction>();
  known->takes_instances = takes != 0;
  known->asks_conversion = asks != 0;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(classes); ++i) {
    known->classes.emplace_back(PyTuple_GET_ITEM(classes, i));
    if (!known->classes.back().is_plain()) return nullptr;
  }
  return known;
}

}  // namespace partax
