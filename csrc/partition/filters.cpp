#include "partition/filters.h"

#include <algorithm>
#include <cstring>

#include "base/error_path.h"
#include "base/owned_reads.h"
#include "base/python_hooks.h"
#include "base/stack_room.h"
#include "classes/type_table.h"

namespace partax {
namespace {

bool is_union(PyObject* object) noexcept {
  const char* name = Py_TYPE(object)->tp_name;
  return std::strcmp(name, "types.UnionType") == 0 || std::strcmp(name, "typing.Union") == 0;
}

// What a predicate of Equinox asks about; nothing of any other function.
std::optional<AsksMore> as_of_equinox(PyObject* function) {
  static Name name("__name__");
  if (!PyFunction_Check(function)) return {};
  const Ref module = dict_item(PyFunction_GET_GLOBALS(function), name.get());
  const bool is_of_equinox = module && PyUnicode_Check(module.get()) &&
                             PyUnicode_CompareWithASCIIString(module.get(), "equinox._filters") == 0;
  const Ref asked = is_of_equinox ? python::asked_by_equinox(function) : Ref();
  if (!asked || asked.get() == Py_None) return {};
  int dtype = 0, conversion = 0;
  parse_tuple(asked.get(), "pp", &dtype, &conversion);
  return AsksMore{dtype != 0, conversion != 0};
}

}  // namespace

ClassTest::ClassTest(PyObject* asked) : asked_(Ref::borrow(asked)) {
  static Name name("__instancecheck__");
  if (!PyType_Check(asked)) return;
  if (asked == hooks().jax_array.get()) {
    how_ = How::kJaxArray;
    return;
  }
  const Ref instance_check = on_type(Py_TYPE(asked), name.get());
  if (instance_check.get() == on_type(&PyType_Type, name.get()).get()) {
    how_ = How::kPlain;
  } else if (instance_check.get() == on_type(hooks().abstract.type(), name.get()).get()) {
    how_ = How::kAbstract;
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
  if (how_ != How::kAbstract || !by_type) limit(reach, Reach::kObject);
  const int answer = PyObject_IsInstance(object, asked_.get());
  if (answer < 0) throw WalkError::from_user_code("asking isinstance about");
  return answer == 1;
}

namespace {

// How far the answer of a callable about an object goes.
Reach reach_of_answer(const Filter& filter, PyObject* object) {
  if (!filter.equinox || !tells_its_class(Py_TYPE(object))) return Reach::kObject;
  const LeafSort sort = TypeTable::instance().find(object).sort;
  const bool has_dtype = sort == LeafSort::kJaxArray || sort == LeafSort::kNumpyArray || sort == LeafSort::kNumpyScalar;
  if (sort == LeafSort::kTracer || (filter.equinox->dtype && has_dtype)) return Reach::kObject;
  Reach reach = Reach::kType;
  return !filter.equinox->conversion || plainly_converts_not(object, reach) ? reach : Reach::kObject;
}

bool read_type(PyObject* object, Filter& filter) {
  std::vector<ClassTest> types;
  const bool is_tuple = PyTuple_CheckExact(object);
  for (Py_ssize_t i = 0; i < (is_tuple ? PyTuple_GET_SIZE(object) : 1); ++i) {
    PyObject* item = is_tuple ? PyTuple_GET_ITEM(object, i) : object;
    if (!PyType_Check(item) && !is_union(item)) return false;
    types.emplace_back(item);
  }
  if (types.empty()) return false;
  filter.types = std::move(types);
  filter.op = Filter::Op::kType;
  filter.has_types = true;
  return true;
}

// An object of partax._pytree.filters: its `_described` is (name, argument).
void read_described(PyObject* object, Filter& filter, int depth) {
  if (depth >= kMaxDepth || !stack_reserve().is_free()) refuse_nested_filter();
  const Ref described = attribute(object, "_described");
  const char* name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(described.get(), 0));
  if (name == nullptr) throw PythonError{};
  if (std::strcmp(name, "glob") == 0 || std::strcmp(name, "regex") == 0) {
    filter.op = Filter::Op::kPath;
    filter.object = described;
    return;
  }
  filter.op = std::strcmp(name, "any") == 0   ? Filter::Op::kAny
              : std::strcmp(name, "all") == 0 ? Filter::Op::kAll
                                              : Filter::Op::kNot;
  for (PyObject* member : Items(PyTuple_GET_ITEM(described.get(), 1))) {
    filter.members.push_back(read_filter(member, depth + 1));
    filter.has_types = filter.has_types || filter.members.back().has_types;
  }
}

}  // namespace

void refuse_nested_filter() {
  throw WalkError::diagnosed(PyExc_RecursionError,
                             "the filter is nested too deeply, by more levels than " + std::to_string(kMaxDepth) +
                                 " or than this thread's stack has room for; give several filters, or a flatter one");
}

Filter read_filter(PyObject* object, int depth) {
  Filter filter;
  if (PyBool_Check(object)) {
    filter.value = object == Py_True;
    return filter;
  }
  if (read_type(object, filter)) return filter;
  const int builtin = predicate_of(object);
  if (builtin >= 0) {
    filter.op = Filter::Op::kBuiltin;
    filter.predicate = static_cast<Predicate>(builtin);
    return filter;
  }
  if (checked_int(PyObject_IsInstance(object, described_filter.get())) == 1) {
    read_described(object, filter, depth);
    return filter;
  }
  if (TypeTable::instance().find(object).kind != Kind::kStaticLeaf) {
    filter.op = Filter::Op::kPrefix;
    filter.object = Ref::borrow(object);
    filter.has_types = true;
    return filter;
  }
  if (PyCallable_Check(object) == 0 || is_dynamic(object, false)) {
    throw WalkError::diagnosed(PyExc_ValueError,
                               "found a `" + type_name(object) +
                                   "` in the filter, expected a bool, a function (leaf) -> bool, a type, by_path(...) "
                                   "or a combination of these at every leaf of it");
  }
  filter.op = Filter::Op::kCallable;
  filter.object = Ref::borrow(object);
  filter.equinox = as_of_equinox(object);
  return filter;
}

bool AnswersByType::ask(PyObject* object, Answer& answer) {
  Reach reach = Reach::kType;
  bool holds = false;
  if (filter_.op == Filter::Op::kBuiltin) {
    holds = partax::holds(filter_.predicate, object, reach);
  } else if (filter_.op == Filter::Op::kType) {
    holds = std::any_of(filter_.types.begin(), filter_.types.end(),
                        [&](const ClassTest& type) { return type.holds(object, reach); });
  } else {
    reach = reach_of_answer(filter_, object);
    holds = is_truthy(filter_.object.get(), object, "asking the filter about");
  }
  if (reach != Reach::kObject) answer = Answer{Py_TYPE(object), reach, holds};
  return holds;
}

}  // namespace partax
