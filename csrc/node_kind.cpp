#include "node_kind.h"

#include <structmember.h>

#include <cstring>
#include <unordered_map>

#include "tree_path.h"

namespace partax {

namespace {

// Never destroyed: the interpreter may be gone by then.
template <typename Value>
union Immortal {
  constexpr Immortal() noexcept : value() {}
  ~Immortal() {}
  Value value;
};

Immortal<Hooks> all_hooks;

}  // namespace

Hooks& hooks() { return all_hooks.value; }

Ref call_python_with(const char* name, PyObject* const* arguments, std::size_t count) {
  const Ref function = Ref::borrow(PyDict_GetItemString(hooks().functions.get(), name));
  if (!function) {
    PyErr_Format(PyExc_SystemError, "partax: nobody has told the native stages of `%s`", name);
    throw PythonError{};
  }
  return Ref::checked(PyObject_Vectorcall(function.get(), arguments, count, nullptr));
}

struct TypeTable::Impl {
  std::unordered_map<PyTypeObject*, TypeInfoPtr> types;
  std::unordered_map<PyObject*, PyTypeObject*> by_weakref;
};

namespace {

PyObject* on_type_death(PyObject*, PyObject* weakref) {
  TypeTable::instance().forget(weakref);
  Py_RETURN_NONE;
}

PyMethodDef type_death_method = {"_type_died", on_type_death, METH_O, nullptr};

void append_interned(std::vector<Ref>& to, PyObject* names) {
  Ref sequence = Ref::checked(PySequence_Tuple(names));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(sequence.get()); ++i) {
    PyObject* name = Py_NewRef(PyTuple_GET_ITEM(sequence.get(), i));
    PyUnicode_InternInPlace(&name);
    to.push_back(Ref::steal(name));
  }
}

struct Named {
  const char* name;
  Kind kind;
  LeafSort sort;
};

constexpr Named kNamed[] = {
    {"named_tuple", Kind::kNamedTuple, LeafSort::kOther},
    {"module", Kind::kModule, LeafSort::kOther},
    {"dataclass", Kind::kDataclass, LeafSort::kOther},
    {"registered", Kind::kRegistered, LeafSort::kOther},
    {"static", Kind::kStatic, LeafSort::kOther},
    {"jax_array", Kind::kStaticLeaf, LeafSort::kJaxArray},
    {"tracer", Kind::kStaticLeaf, LeafSort::kTracer},
    {"numpy_array", Kind::kStaticLeaf, LeafSort::kNumpyArray},
    {"numpy_scalar", Kind::kStaticLeaf, LeafSort::kNumpyScalar},
    {"ref", Kind::kStaticLeaf, LeafSort::kRef},
    {"abstract", Kind::kStaticLeaf, LeafSort::kAbstract},
    {"int", Kind::kStaticLeaf, LeafSort::kBoolOrInt},
    {"float", Kind::kStaticLeaf, LeafSort::kFloatOrComplex},
    {"other", Kind::kStaticLeaf, LeafSort::kOther},
};

bool truth(PyObject* value) noexcept { return value == Py_True; }

void append_slots(std::vector<Slot>& to, PyObject* descriptors) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(descriptors); ++i) {
    PyObject* descriptor = PyTuple_GET_ITEM(descriptors, i);
    to.push_back(
        Slot{attribute(descriptor, "__name__"), reinterpret_cast<PyMemberDescrObject*>(descriptor)->d_member->offset});
  }
}

// Fills `info` from partax._families.describe: (name, child names, static names, traits).
void describe(PyObject* object, TypeInfo& info) {
  Ref description = Ref::checked(PyObject_CallOneArg(hooks().describe.get(), object));
  PyObject* tuple = description.get();
  const char* name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(tuple, 0));
  if (name == nullptr) throw PythonError{};
  for (const Named& named : kNamed) {
    if (std::strcmp(named.name, name) != 0) continue;
    info.kind = named.kind;
    info.sort = named.sort;
  }
  append_interned(info.child_names, PyTuple_GET_ITEM(tuple, 1));
  append_interned(info.static_names, PyTuple_GET_ITEM(tuple, 2));
  PyObject* traits = PyTuple_GET_ITEM(tuple, 3);
  PyObject *compared = nullptr, *slots = nullptr, *installed = nullptr, *constant = nullptr, *is_enum = nullptr;
  if (PyArg_ParseTuple(traits, "OOOOO", &compared, &slots, &installed, &constant, &is_enum) == 0) throw PythonError{};
  info.is_frozen_dataclass = compared != Py_None;
  if (info.is_frozen_dataclass) append_interned(info.compared, compared);
  info.is_in_reach = slots != Py_None;
  if (info.is_in_reach) append_slots(info.slots, slots);
  info.is_installed = truth(installed);
  info.is_constant = truth(constant);
  info.is_enum = truth(is_enum);
}

// Exact built-in types, which nobody can register otherwise.
bool describe_builtin(PyTypeObject* type, TypeInfo& info) {
  info.is_installed = true;
  if (type == Py_TYPE(Py_None)) {
    info.kind = Kind::kNone;
  } else if (type == &PyTuple_Type) {
    info.kind = Kind::kTuple;
  } else if (type == &PyList_Type) {
    info.kind = Kind::kList;
  } else if (type == &PyDict_Type) {
    info.kind = Kind::kDict;
  } else if (type == &PyODict_Type) {
    info.kind = Kind::kOrderedDict;
  } else if (reinterpret_cast<PyObject*>(type) == hooks().default_dict.get()) {
    info.kind = Kind::kDefaultDict;
  } else if (type == &PyBool_Type || type == &PyLong_Type) {
    info.sort = LeafSort::kBoolOrInt;
  } else if (type == &PyFloat_Type || type == &PyComplex_Type) {
    info.sort = LeafSort::kFloatOrComplex;
  } else if (type == &PyUnicode_Type || type == &PyFunction_Type || type == &PyType_Type || type == &PyBytes_Type) {
    info.sort = LeafSort::kOther;
  } else {
    info.is_installed = false;  // as far as is known here
    return false;
  }
  return true;
}

}  // namespace

TypeTable::TypeTable() : impl_(new Impl()) {}

TypeTable& TypeTable::instance() {
  static auto* const table = new TypeTable();
  return *table;
}

const TypeInfo& TypeTable::find_slow(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  auto known = impl_->types.find(type);
  if (known == impl_->types.end()) {
    // Python code may run and re-enter here, so the table is changed only afterwards.
    auto info = std::make_shared<TypeInfo>();
    info->type = type;
    if (!describe_builtin(type, *info)) describe(object, *info);
    Ref callback = Ref::checked(PyCFunction_New(&type_death_method, nullptr));
    info->weak_type = Ref::checked(PyWeakref_NewRef(reinterpret_cast<PyObject*>(type), callback.get()));
    known = impl_->types.find(type);
    if (known == impl_->types.end()) {
      const auto indexed = impl_->by_weakref.emplace(info->weak_type.get(), type).first;
      try {
        known = impl_->types.emplace(type, std::move(info)).first;
      } catch (...) {
        impl_->by_weakref.erase(indexed);
        throw;
      }
    }
  }
  recent_[slot(type)] = known->second.get();
  return *known->second;
}

TypeInfoPtr TypeTable::shared(const TypeInfo& info) const {
  auto known = impl_->types.find(info.type);
  if (known == impl_->types.end() || known->second.get() != &info) {
    PyErr_SetString(PyExc_RuntimeError, "partax: a type changed while it was being read");
    throw PythonError{};
  }
  return known->second;
}

void TypeTable::forget(PyObject* weak_type) noexcept {
  auto by_weakref = impl_->by_weakref.find(weak_type);
  if (by_weakref == impl_->by_weakref.end()) return;
  auto known = impl_->types.find(by_weakref->second);
  recent_[slot(by_weakref->second)] = nullptr;
  TypeInfoPtr dropped = std::move(known->second);  // destroyed after the erase
  impl_->types.erase(known);
  impl_->by_weakref.erase(by_weakref);
}

void TypeTable::clear() noexcept {
  std::unordered_map<PyTypeObject*, TypeInfoPtr> types;
  types.swap(impl_->types);
  impl_->by_weakref.clear();
  std::memset(recent_, 0, sizeof(recent_));
}

void TypeTable::refresh_registrations() {
  registrations_ = PyDict_GET_SIZE(hooks().registered.get());
  // Asking the dictionary may run a metaclass's __hash__, so the table is left alone until that is over.
  std::vector<Ref> leaves;
  for (const auto& [type, info] : impl_->types) {
    const bool may_change = info->kind == Kind::kStaticLeaf || info->kind == Kind::kNamedTuple;
    if (may_change) leaves.push_back(info->weak_type);
  }
  bool outdated = false;
  for (const Ref& weak_type : leaves) {
    Ref type = weak_target(weak_type.get());
    if (!type || checked_int(PyDict_Contains(hooks().registered.get(), type.get())) == 0) continue;
    forget(weak_type.get());
    outdated = true;
  }
  if (outdated) ++epoch_;
}

const char* kind_name(Kind kind) noexcept {
  switch (kind) {
    case Kind::kDynamicLeaf:
    case Kind::kDynamicRun:
      return "dynamic_leaf";
    case Kind::kStaticLeaf:
    case Kind::kStaticRun:
      return "static_leaf";
    case Kind::kNone:
      return "none";
    case Kind::kTuple:
      return "tuple";
    case Kind::kList:
      return "list";
    case Kind::kDict:
      return "dict";
    case Kind::kOrderedDict:
      return "ordered_dict";
    case Kind::kDefaultDict:
      return "default_dict";
    case Kind::kNamedTuple:
      return "named_tuple";
    case Kind::kModule:
      return "module";
    case Kind::kDataclass:
      return "dataclass";
    case Kind::kRegistered:
      return "registered";
    case Kind::kStatic:
      return "static";
    case Kind::kCall:
      return "call";
  }
  return "unknown";
}

}  // namespace partax
