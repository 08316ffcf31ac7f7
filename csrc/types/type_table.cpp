#include "types/type_table.h"

#include <structmember.h>

#include <algorithm>
#include <iterator>

#include "base/python_hooks.h"

namespace partax {
namespace {

PyObject* on_type_death(PyObject* address, PyObject* weakref) noexcept {
  const Turn turn;
  TypeTable::instance().forget(static_cast<PyTypeObject*>(PyLong_AsVoidPtr(address)), weakref);
  Py_RETURN_NONE;
}

PyMethodDef type_death_method = {"_type_died", on_type_death, METH_O, nullptr};

std::vector<Ref> interned_names(PyObject* names) {
  std::vector<Ref> result;
  for (PyObject* name : Items(names)) result.push_back(interned(name));
  return result;
}

struct Named {
  const char* name;
  Kind kind;
  LeafSort sort = LeafSort::kOther;
};

// The first of a kind is its name, which Python uses too.
constexpr Named kNamed[] = {
    {"dynamic_leaf", Kind::kDynamicLeaf},
    {"static_leaf", Kind::kStaticLeaf},
    {"static_leaf", Kind::kStaticRun},
    {"none", Kind::kNone},
    {"tuple", Kind::kTuple},
    {"list", Kind::kList},
    {"dict", Kind::kDict},
    {"ordered_dict", Kind::kOrderedDict},
    {"default_dict", Kind::kDefaultDict},
    {"call", Kind::kCall},
    {"named_tuple", Kind::kNamedTuple},
    {"module", Kind::kModule},
    {"dataclass", Kind::kDataclass},
    {"declared", Kind::kDeclared},
    {"registered", Kind::kRegistered},
    {"entries", Kind::kEntries},
    {"static", Kind::kStatic},
    {"jax_array", Kind::kStaticLeaf, LeafSort::kJaxArray},
    {"tracer", Kind::kStaticLeaf, LeafSort::kTracer},
    {"numpy_array", Kind::kStaticLeaf, LeafSort::kNumpyArray},
    {"numpy_scalar", Kind::kStaticLeaf, LeafSort::kNumpyScalar},
    {"ref", Kind::kStaticLeaf, LeafSort::kRef},
    {"abstract", Kind::kStaticLeaf, LeafSort::kAbstract},
    {"int", Kind::kStaticLeaf, LeafSort::kBoolOrInt},
    {"float", Kind::kStaticLeaf, LeafSort::kFloatOrComplex},
};

// Where the slots of the fields are, if all are in slots; the class describer has seen to it that none or all are.
void find_offsets(PyTypeObject* type, TypeInfo& info) {
  for (const std::vector<Ref>* names : {&info.child_names, &info.static_names}) {
    for (const Ref& name : *names) {
      const Ref descriptor = on_type(type, name.get());
      if (!descriptor || Py_TYPE(descriptor.get()) != &PyMemberDescr_Type) return info.offsets.clear();
      info.offsets.push_back(reinterpret_cast<PyMemberDescrObject*>(descriptor.get())->d_member->offset);
    }
  }
}

// Fills `info` from the partax._families.fields.Description of the type. One of the exact built-in types, which cannot
// be registered otherwise, has no traits.
void describe(PyObject* object, TypeInfo& info) {
  const Ref description = python::describe_type(object);
  const auto field = [&](const char* name) { return attribute(description.get(), name); };
  const std::string family = exact_text(field("family").get());
  for (const Named& named : kNamed) {
    if (family != named.name) continue;
    info.kind = named.kind;
    info.sort = named.sort;
  }
  const Ref traits = field("traits"), error = field("error");
  info.is_builtin = info.traits.is_installed = traits.get() == Py_None;
  if (info.is_builtin) return;
  if (info.kind == Kind::kEntries) info.layout = std::make_unique<const Layout>(field("layout").get());
  info.child_names = interned_names(field("child_names").get());
  info.static_names = interned_names(field("static_names").get());
  if (info.kind == Kind::kDataclass || info.kind == Kind::kDeclared) find_offsets(Py_TYPE(object), info);
  for (PyObject* index : Items(field("set_order").get())) {
    info.set_order.push_back(static_cast<std::uint32_t>(size_of_number(index)));
  }
  info.is_frozen = field("is_frozen").get() == Py_True;
  info.functions.flatten = field("flatten");
  info.functions.unflatten = field("unflatten");
  if (PyUnicode_GET_LENGTH(error.get()) != 0) info.functions.error = error;
  const auto trait = [&](const char* name) { return attribute(traits.get(), name); };
  const Ref compared = trait("compared");
  if (compared.get() != Py_None) info.traits.compared = interned_names(compared.get());
  info.traits.is_installed = trait("is_installed").get() == Py_True;
  info.traits.is_enum = trait("is_enum").get() == Py_True;
  info.traits.equal_by = Ref::borrow(null_if_none(trait("equal_by").get()));
}

// A method as a node: its object is the child, and its function the aux data.
PyObject* flatten_method(PyObject* /*module*/, PyObject* method) noexcept {
  const Turn turn;
  return Py_BuildValue("(O)O", PyMethod_GET_SELF(method), PyMethod_GET_FUNCTION(method));
}

PyObject* unflatten_method(PyObject* /*module*/, PyObject* arguments) noexcept {
  const Turn turn;
  PyObject *function, *object;
  return PyArg_ParseTuple(arguments, "O(O)", &function, &object) != 0 ? PyMethod_New(function, object) : nullptr;
}

PyMethodDef method_functions[] = {{"flatten_method", flatten_method, METH_O, nullptr},
                                  {"unflatten_method", unflatten_method, METH_VARARGS, nullptr}};

}  // namespace

TypeTable& TypeTable::instance() {
  static auto* const table = new TypeTable();
  return *table;
}

const TypeInfo& TypeTable::find_slow(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  auto entry = types_.find(type);
  if (entry == types_.end()) {
    // Python code may run and re-enter here, so the table is changed only afterwards.
    auto info = std::make_shared<TypeInfo>();
    info->type = type;
    describe(object, *info);
    const Ref address = Ref::checked(PyLong_FromVoidPtr(type));
    const Ref callback = Ref::checked(PyCFunction_New(&type_death_method, address.get()));
    info->weak_type = Ref::checked(PyWeakref_NewRef(reinterpret_cast<PyObject*>(type), callback.get()));
    entry = types_.emplace(type, std::move(info)).first;
  }
  recent_[slot(type)] = entry->second.get();
  return *entry->second;
}

const TypeInfo& TypeTable::method_of_node() {
  if (!method_) {
    auto info = std::make_shared<TypeInfo>();
    info->type = &PyMethod_Type;
    info->kind = Kind::kRegistered;
    info->functions.flatten = Ref::checked(PyCFunction_New(&method_functions[0], nullptr));
    info->functions.unflatten = Ref::checked(PyCFunction_New(&method_functions[1], nullptr));
    method_ = std::move(info);
  }
  return *method_;
}

TypeInfoPtr TypeTable::shared(const TypeInfo& info) const {
  if (method_.get() == &info) return method_;
  auto entry = types_.find(info.type);
  if (entry == types_.end() || entry->second.get() != &info)
    raise_error(PyExc_RuntimeError, "partax: a type changed while it was being read");
  return entry->second;
}

void TypeTable::forget(PyTypeObject* type, PyObject* weak_type) noexcept {
  auto entry = types_.find(type);
  if (entry == types_.end() || entry->second->weak_type.get() != weak_type) return;
  recent_[slot(type)] = nullptr;
  const TypeInfoPtr dropped = std::move(entry->second);  // destroyed after the erase
  types_.erase(entry);
}

void TypeTable::read_anew(PyTypeObject* type) {
  const auto entry = types_.find(type);
  if (entry == types_.end()) return;
  forget(type, entry->second->weak_type.get());
  ++epoch_;
}

void TypeTable::refresh_registrations() {
  PyObject* const registered = hooks.registered.get();
  if (registered == nullptr && !hooks.is_node) return;  // partax is being imported
  if (registered != nullptr) registrations_ = PyDict_GET_SIZE(registered);
  const auto is_node = [&](PyObject* type) {
    if (registered != nullptr) return checked_int(PyDict_Contains(registered, type)) == 1;
    return Ref::checked(PyObject_CallOneArg(hooks.is_node.get(), type)).get() == Py_True;
  };
  // Asking may run a metaclass's __hash__, so the table is left alone until that is over.
  std::vector<Ref> leaves;
  for (const auto& [type, info] : types_) {
    const bool may_change = info->kind == Kind::kStaticLeaf || info->kind == Kind::kNamedTuple;
    if (may_change && !info->is_builtin) leaves.push_back(info->weak_type);
  }
  bool changed = false;
  for (const Ref& weak_type : leaves) {
    Ref type = weak_target(weak_type.get());
    if (!type || !is_node(type.get())) continue;
    forget(reinterpret_cast<PyTypeObject*>(type.get()), weak_type.get());
    changed = true;
  }
  if (changed) ++epoch_;
}

const char* kind_name(Kind kind) noexcept {
  return std::find_if(std::begin(kNamed), std::end(kNamed), [&](const Named& named) { return named.kind == kind; })
      ->name;
}

}  // namespace partax
