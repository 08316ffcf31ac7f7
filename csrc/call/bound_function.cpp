// What `bind` returns, as a Python type.
#include "base/boxed.h"
#include "call/call.h"
// After Python.h.
#include <structmember.h>

namespace partax {
namespace {

struct BoundFunction {
  Boxed<Bindings> box;
  vectorcallfunc vectorcall;
};

PyObject* bound_vectorcall(PyObject* self, PyObject* const* args, std::size_t nargsf,
                           PyObject* keyword_names) noexcept {
  return guarded<PyObject*>(nullptr, [&] {
    const Ref keep = Ref::borrow(self);
    Bindings& bindings = Boxed<Bindings>::in(self);
    const BoundArguments all(bindings, args, static_cast<std::size_t>(PyVectorcall_NARGS(nargsf)), keyword_names);
    return run_call(as_jit(bindings.jit.get()), all.data(), all.num_positional(), all.names(), &all).release();
  });
}

template <Ref Bindings::* kPart>
PyObject* get(PyObject* self, void*) noexcept {
  return guarded<PyObject*>(nullptr, [&] { return Ref(Boxed<Bindings>::in(self).*kPart).release(); });
}

PyObject* get_keywords(PyObject* self, void*) noexcept {
  return guarded<PyObject*>(nullptr, [&] { return PyDict_Copy(Boxed<Bindings>::in(self).keywords.get()); });
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
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Boxed<Bindings>, weakrefs), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

constexpr char kBoundDoc[] =
    "A compiled function with arguments that are read, checked and kept once: what `bind` returns.";

}  // namespace

void register_bound_function_type(PyObject* module) {
  Boxed<Bindings>::type =
      add_boxed_type<Bindings>(module, "partax._core.BoundFunction", kBoundDoc,
                               {{Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                                {Py_tp_methods, binding_methods},
                                {Py_tp_getset, binding_getset},
                                {Py_tp_members, binding_members}},
                               Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION, sizeof(BoundFunction));
}

Ref make_bound_function(PyObject* jit, PyObject* args, PyObject* kwargs, bool keeps_callable) {
  check_is_wrapper(jit);
  auto bindings = std::make_unique<Bindings>();
  bindings->jit = Ref::borrow(jit);
  bindings->keeps_callable = keeps_callable;
  bindings->args = Ref::borrow(args);
  bindings->keywords = Ref::checked(PyDict_Copy(kwargs));
  if (PyDict_GET_SIZE(kwargs) != 0) bindings->names = Ref::checked(PySequence_Tuple(kwargs));
  bindings->named = Ref::checked(PySequence_Tuple(Ref::checked(PyDict_Values(kwargs)).get()));
  Ref object = box(std::move(bindings));
  reinterpret_cast<BoundFunction*>(object.get())->vectorcall = bound_vectorcall;
  return object;
}

}  // namespace partax
