#include "partition/known_functions.h"

#include <algorithm>

#include "classes/predicates.h"

namespace partax {
namespace {

// A value in a dictionary that an answer depends on; empty where there has to be none.
struct Read {
  Ref dict;
  Ref name;
  Ref value;

  bool holds() const {
    PyObject* now = PyDict_GetItemWithError(dict.get(), name.get());
    if (now == nullptr && PyErr_Occurred() != nullptr) throw PythonError{};
    return now == value.get();
  }
};

struct Proven {
  Ref function;
  Ref code;
  std::vector<Read> reads;
  std::shared_ptr<const KnownFunction> known;  // null: nothing is known of it
};

bool is_of_equinox(PyObject* function) {
  static Name name("__name__");
  PyObject* module = PyDict_GetItemWithError(PyFunction_GET_GLOBALS(function), name.get());
  if (module == nullptr && PyErr_Occurred() != nullptr) throw PythonError{};
  return module != nullptr && PyUnicode_Check(module) &&
         PyUnicode_CompareWithASCIIString(module, "equinox._filters") == 0;
}

Proven prove(PyObject* function) {
  Proven proven{Ref::borrow(function), Ref::borrow(PyFunction_GET_CODE(function)), {}, nullptr};
  const Ref answers = call_python("partax._families.class_answers", "equinox_answers", function);
  if (answers.get() == Py_None) return proven;
  PyObject *classes = nullptr, *reads = nullptr;
  auto known = std::make_shared<KnownFunction>();
  int takes = 0, asks = 0;
  if (PyArg_ParseTuple(answers.get(), "O!ppO!", &PyTuple_Type, &classes, &takes, &asks, &PyTuple_Type, &reads) == 0) {
    throw PythonError{};
  }
  known->takes_instances = takes != 0;
  known->asks_conversion = asks != 0;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(classes); ++i) {
    known->classes.emplace_back(PyTuple_GET_ITEM(classes, i));
    if (!known->classes.back().is_plain()) return proven;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(reads); ++i) {
    PyObject *dict = nullptr, *name = nullptr, *value = nullptr;
    if (PyArg_ParseTuple(PyTuple_GET_ITEM(reads, i), "O!UO", &PyDict_Type, &dict, &name, &value) == 0) {
      throw PythonError{};
    }
    proven.reads.push_back(Read{Ref::borrow(dict), Ref::borrow(name), value == Py_None ? Ref() : Ref::borrow(value)});
  }
  proven.known = std::move(known);
  return proven;
}

bool still_holds(const Proven& proven) {
  return proven.code.get() == PyFunction_GET_CODE(proven.function.get()) &&
         std::all_of(proven.reads.begin(), proven.reads.end(), [](const Read& read) { return read.holds(); });
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
  constexpr std::size_t kMost = 16;
  static auto* const all = new std::vector<std::shared_ptr<const Proven>>();
  const auto position = [&] {
    return std::find_if(all->begin(), all->end(), [&](const auto& each) { return each->function.get() == function; });
  };
  std::shared_ptr<const Proven> proven;
  if (const auto found = position(); found != all->end()) proven = *found;
  if (proven && still_holds(*proven)) return proven->known;
  proven = std::make_shared<const Proven>(prove(function));  // Python code runs, which may come here too
  std::shared_ptr<const Proven> former = proven;             // dropped when the table is whole again
  if (const auto found = position(); found != all->end()) {
    found->swap(former);
  } else if (all->size() < kMost) {
    all->push_back(proven);
  }
  return still_holds(*proven) ? proven->known : nullptr;
}

}  // namespace partax
