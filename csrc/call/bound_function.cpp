#include "call/bound_function.h"

#include <structmember.h>

#include "base/trashcan.h"
#include "call/call.h"

namespace partax {
namespace {

PyTypeObject* binding_type = nullptr;

struct BoundFunction {
  PyObject_HEAD
  PyObject* weakrefs;  // first, as of NestableHead
  vectorcallfunc vectorcall;
  Bindings* bindings;  // null while it is made, and once the garbage collector has cleared it
};

BoundFunction& as_bound(PyObject* object) noexcept { return *reinterpret_cast<BoundFunction*>(object); }

Bindings& bindings_of(PyObject* self) {
  if (as_bound(self).bindings != nullptr) return *as_bound(self).bindings;
  set_released();
  throw PythonError{};
}

PyObject* bound_vectorcall(PyObject* self, PyObject* const* args, std::size_t nargsf,
                           PyObject* keyword_names) noexcept {
  return guarded<PyObject*>(nullptr, [&] {
    const Ref keep = Ref::borrow(self);
    Bindings& bindings = bindings_of(self);
    const BoundArguments all(bindings, args, static_cast<std::size_t>(PyVectorcall_NARGS(nargsf)), keyword_names);
    return run_call(as_jit(bindings.jit.get()), all.data(), all.num_positional(), all.names(), &all).release();
  });
}

int bound_traverse(PyObject* self, visitproc visit, void* arg) noexcept {
  Py_VISIT(Py_TYPE(self));
  return as_bound(self).bindings == nullptr ? 0 : as_bound(self).bindings->traverse(visit, arg);
}

int bound_clear(PyObject* self) noexcept {
  const Turn turn;
  const std::unique_ptr<Bindings> dropped(std::exchange(as_bound(self).bindings, nullptr));
  return 0;
}

void bound_dealloc(PyObject* self) noexcept {
  static_assert(offsetof(BoundFunction, weakrefs) == offsetof(NestableHead, weakrefs));
  dealloc_nested(self, [](PyObject* dying) noexcept { bound_clear(dying); });
}

template <Ref Bindings::* kPart>
PyObject* get(PyObject* self, void*) noexcept {
  return guarded<PyObject*>(nullptr, [&] { return Ref(bindings_of(self).*kPart).release(); });
}

PyObject* get_keywords(PyObject* self, void*) noexcept {
  return guarded<PyObject*>(nullptr, [&] { return PyDict_Copy(bindings_of(self).keywords.get()); });
}

PyGetSetDef binding_getset[] = {
    {"func", get<&Bindings::jit>, nullptr, "The wrapper.", nullptr},
    {"args", get<&Bindings::args>, nullptr, "The leading arguments that are bound, a tuple.", nullptr},
    {"keywords", get_keywords, nullptr, "The keywords that are bound, a dictionary.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyMethodDef binding_methods[] = {{"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, nullptr},
                                 {nullptr, nullptr, 0, nullptr}};

PyMemberDef binding_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(BoundFunction, vectorcall), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(BoundFunction, weakrefs), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

constexpr char kBoundDoc[] =
    "A compiled function with arguments that are read, checked and kept once: what `bind` returns.";

PyType_Slot binding_slots[] = {{Py_tp_doc, const_cast<char*>(kBoundDoc)},
                               {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                               {Py_tp_traverse, reinterpret_cast<void*>(bound_traverse)},
                               {Py_tp_clear, reinterpret_cast<void*>(bound_clear)},
                               {Py_tp_dealloc, reinterpret_cast<void*>(bound_dealloc)},
                               {Py_tp_methods, binding_methods},
                               {Py_tp_getset, binding_getset},
                               {Py_tp_members, binding_members},
                               {0, nullptr}};

PyType_Spec binding_spec = {
    "partax._core.BoundFunction", sizeof(BoundFunction), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    binding_slots};

}  // namespace

Ref register_bound_function_type() {
  Ref type = Ref::checked(PyType_FromSpec(&binding_spec));
  binding_type = reinterpret_cast<PyTypeObject*>(Py_NewRef(type.get()));
  return type;
}

Ref make_bound_function(PyObject* jit, PyObject* args, PyObject* kwargs, bool keeps_callable) {
  auto bindings = std::make_unique<Bindings>();
  bindings->jit = Ref::borrow(jit);
  bindings->keeps_callable = keeps_callable;
  bindings->args = Ref::borrow(args);
  bindings->keywords = Ref::checked(PyDict_Copy(kwargs));
  if (PyDict_GET_SIZE(kwargs) != 0) bindings->names = Ref::checked(PySequence_Tuple(kwargs));
  bindings->named = Ref::checked(PySequence_Tuple(Ref::checked(PyDict_Values(kwargs)).get()));
  Ref object = Ref::checked(binding_type->tp_alloc(binding_type, 0));
  as_bound(object.get()).vectorcall = bound_vectorcall;
  as_bound(object.get()).bindings = bindings.release();
  return object;
}

}  // namespace partax
