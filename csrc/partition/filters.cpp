#include "partition/filters.h"

#include <cstring>

#include "base/error_path.h"
#include "base/type_table.h"

namespace partax {
namespace {

bool is_union(PyObject* object) noexcept {
  const char* name = Py_TYPE(object)->tp_name;
  return std::strcmp(name, "types.UnionType") == 0 || std::strcmp(name, "typing.Union") == 0;
}

// Whether isinstance with this class on the right is answered by type.__instancecheck__.
bool has_plain_check(PyObject* cls) {
  if (PyType_CheckExact(cls)) return true;
  const Ref ours = attribute(reinterpret_cast<PyObject*>(Py_TYPE(cls)), "__instancecheck__");
  const Ref plain = attribute(reinterpret_cast<PyObject*>(&PyType_Type), "__instancecheck__");
  return ours.get() == plain.get();
}

// Whether `__class__` of this type's instances is their type.
bool tells_its_class(PyTypeObject* type) {
  if (type->tp_getattro != PyObject_GenericGetAttr || type->tp_mro == nullptr) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i));
    if (base == &PyBaseObject_Type) return true;
    if (!(base->tp_flags & Py_TPFLAGS_HEAPTYPE)) continue;
    const Ref dict = attribute(reinterpret_cast<PyObject*>(base), "__dict__");
    const Ref name = Ref::checked(PyUnicode_InternFromString("__class__"));
    if (checked_int(PySequence_Contains(dict.get(), name.get())) == 1) return false;
  }
  return false;
}

}  // namespace

bool is_instance(PyObject* object, PyObject* type, bool& by_type) {
  PyTypeObject* actual = Py_TYPE(object);
  if (type == hooks().jax_array.get()) {
    const TypeInfo& info = TypeTable::instance().find(object);
    if (info.sort != LeafSort::kTracer) return info.sort == LeafSort::kJaxArray;
    by_type = false;
  } else if (PyType_Check(type) && has_plain_check(type)) {
    if (PyType_IsSubtype(actual, reinterpret_cast<PyTypeObject*>(type)) != 0) return true;
    if (tells_its_class(actual)) return false;
    by_type = false;
  } else {
    by_type = false;
  }
  const int answer = PyObject_IsInstance(object, type);
  if (answer < 0) throw WalkError::from_user_code("asking isinstance about");
  return answer == 1;
}

FilterPtr FilterReader::read(PyObject* object) {
  auto filter = std::make_shared<Filter>();
  if (PyBool_Check(object)) {
    filter->value = object == Py_True;
    return filter;
  }
  if (read_type(object, *filter)) return filter;
  if (checked_int(PyObject_IsInstance(object, described_filter.get())) == 1) {
    read_described(object, *filter);
    return filter;
  }
  if (TypeTable::instance().find(object).kind != Kind::kStaticLeaf) {
    filter->op = Filter::Op::kPrefix;
    filter->object = Ref::borrow(object);
    filter->has_prefix = true;
    return filter;
  }
  const int builtin = predicate_of(object);
  if (builtin >= 0) {
    filter->op = Filter::Op::kBuiltin;
    filter->predicate = static_cast<Predicate>(builtin);
    return filter;
  }
  if (PyCallable_Check(object) == 0 || is_dynamic(object, false)) {
    throw WalkError::diagnosed(PyExc_ValueError,
                               "found a `" + type_name(object) +
                                   "` in the filter, expected a bool, a function (leaf) -> bool, a type, by_path(...) "
                                   "or a combination of these at every leaf of it");
  }
  filter->op = Filter::Op::kCallable;
  filter->object = Ref::borrow(object);
  return filter;
}

bool FilterReader::read_type(PyObject* object, Filter& filter) {
  std::vector<Ref> types;
  const bool is_tuple = PyTuple_CheckExact(object);
  for (Py_ssize_t i = 0; i < (is_tuple ? PyTuple_GET_SIZE(object) : 1); ++i) {
    PyObject* item = is_tuple ? PyTuple_GET_ITEM(object, i) : object;
    if (!PyType_Check(item) && !is_union(item)) return false;
    types.push_back(Ref::borrow(item));
  }
  if (types.empty()) return false;
  filter.types = std::move(types);
  filter.op = Filter::Op::kType;
  filter.atom = num_atoms_++;
  return true;
}

// The objects of partax._partition.filters: their `_described` is (name, argument).
void FilterReader::read_described(PyObject* object, Filter& filter) {
  if (++depth_ > kMaxDepth) throw WalkError::diagnosed(PyExc_RecursionError, "the filter is nested too deeply");
  const Ref described = attribute(object, "_described");
  const char* name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(described.get(), 0));
  if (name == nullptr) throw PythonError{};
  PyObject* argument = PyTuple_GET_ITEM(described.get(), 1);
  if (std::strcmp(name, "glob") == 0) {
    filter.op = Filter::Op::kGlob;
    filter.glob = std::make_shared<PathGlob>(argument);
    filter.atom = num_atoms_++;
  } else if (std::strcmp(name, "regex") == 0) {
    filter.op = Filter::Op::kRegex;
    filter.object = attribute(argument, "search");
  } else {
    filter.op = std::strcmp(name, "any") == 0   ? Filter::Op::kAny
                : std::strcmp(name, "all") == 0 ? Filter::Op::kAll
                                                : Filter::Op::kNot;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(argument); ++i) {
      filter.members.push_back(read(PyTuple_GET_ITEM(argument, i)));
      filter.has_prefix = filter.has_prefix || filter.members.back()->has_prefix;
    }
  }
  --depth_;
}

}  // namespace partax
