#include "partition/filters.h"

#include <algorithm>
#include <cstring>

#include "base/error_path.h"
#include "base/owned_reads.h"
#include "base/python_hooks.h"
#include "base/stack_room.h"
#include "types/type_table.h"

namespace partax {
namespace {

bool is_union(PyObject* object) noexcept {
  const char* name = Py_TYPE(object)->tp_name;
  return std::strcmp(name, "types.UnionType") == 0 || std::strcmp(name, "typing.Union") == 0;
}

bool are_types(const Items& items) {
  return items.begin() != items.end() &&
         std::all_of(items.begin(), items.end(), [](PyObject* item) { return PyType_Check(item) || is_union(item); });
}

bool read_type(PyObject* object, Filter& filter) {
  const Ref types = PyTuple_CheckExact(object) ? Ref::borrow(object) : tuple_of({Ref::borrow(object)});
  if (!are_types(Items(types.get()))) return false;
  filter.op = Filter::Op::kType;
  filter.object = Ref::borrow(object);
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

bool is_filter_leaf(PyObject* object) {
  return PyMethod_Check(object) || (PyTuple_CheckExact(object) && are_types(Items(object)));
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
  if (checked_int(PyObject_IsInstance(object, hooks.described_filter.get())) == 1) {
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
  return filter;
}

bool matches(const Filter& filter, PyObject* object) {
  if (filter.op == Filter::Op::kBuiltin) return holds(filter.predicate, object);
  if (filter.op == Filter::Op::kCallable) return is_truthy(filter.object.get(), object, "asking the filter about");
  const int is_instance = PyObject_IsInstance(object, filter.object.get());
  if (is_instance < 0) throw WalkError::from_user_code("asking isinstance about");
  return is_instance == 1;
}

}  // namespace partax
