#include "dispatch/jit_function.h"

#include <structmember.h>

#include "base/boxed.h"
#include "base/owned_reads.h"
#include "dispatch/call.h"

namespace partax {
namespace {

PyTypeObject* jit_type = nullptr;
PyTypeObject* bound_type = nullptr;  // of wrappers with their first argument bound

// ---- Slots of the wrapper.

PyObject* jit_vectorcall(PyObject* self, PyObject* const* args, std::size_t nargsf, PyObject* keyword_names) noexcept {
  return guarded<PyObject*>(nullptr, [&] {
    const Ref keep = Ref::borrow(self);
    return run_call(as_jit(self), args, static_cast<std::size_t>(PyVectorcall_NARGS(nargsf)), keyword_names).release();
  });
}

int jit_traverse(PyObject* self, visitproc visit, void* arg) noexcept {
  JitFunction& jit = as_jit(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(jit.callable);
  Py_VISIT(jit.function);
  Py_VISIT(jit.self);
  Py_VISIT(jit.options);
  Py_VISIT(jit.dict);
  Py_VISIT(jit.cache);
  return 0;
}

int jit_clear(PyObject* self) noexcept {
  const Turn turn;
  JitFunction& jit = as_jit(self);
  Py_CLEAR(jit.callable);
  Py_CLEAR(jit.function);
  Py_CLEAR(jit.self);
  Py_CLEAR(jit.dict);
  return 0;  // options and cache stay: it holds the wrapper only through user values, which the GC clears elsewhere
}

void jit_dealloc(PyObject* self) noexcept {
  dealloc_nested(self, jit_dealloc, [](PyObject* dying) noexcept {
    jit_clear(dying);
    Py_CLEAR(as_jit(dying).options);
    Py_CLEAR(as_jit(dying).cache);
  });
}

// `self` (may be null) is the instance that `callable`, a method of `function`, is bound to.
Ref new_jit(PyObject* callable, PyObject* function, PyObject* self, PyObject* options) {
  PyTypeObject* const type = self == nullptr && !PyMethod_Check(function) ? jit_type : bound_type;
  Ref object = Ref::checked(type->tp_alloc(type, 0));
  JitFunction& jit = as_jit(object.get());
  jit.vectorcall = jit_vectorcall;
  jit.callable = Py_NewRef(callable);
  jit.function = Py_NewRef(function);
  jit.self = Py_XNewRef(self);
  jit.options = Py_NewRef(options);
  return object;
}

// As a method: the same wrapper with its first argument bound.
PyObject* jit_get(PyObject* self, PyObject* instance, PyObject*) noexcept {
  return guarded<PyObject*>(nullptr, [&]() -> PyObject* {
    const JitFunction& jit = as_jit(self);
    if (instance == nullptr || instance == Py_None || Py_TYPE(self) == bound_type) return Py_NewRef(self);
    Ref bound = new_jit(jit.callable, function_of(jit), instance, jit.options);
    as_jit(bound.get()).cache = Py_XNewRef(jit.cache);
    as_jit(bound.get()).dict = part_at(self, jit.dict).release();
    as_jit(bound.get()).callable_is_tree = jit.callable_is_tree;
    return bound.release();
  });
}

// The attributes by which a wrapper describes its callable are the callable's own unless set on the wrapper, and its
// first two those of its class where it has none.
PyObject* jit_getattro(PyObject* self, PyObject* name) noexcept {
  static Name delegated[] = {Name("__name__"), Name("__qualname__"), Name("__doc__"), Name("__module__"),
                             Name("__annotations__")};
  return guarded<PyObject*>(nullptr, [&]() -> PyObject* {
    const JitFunction& jit = as_jit(self);
    const Ref function = Ref::borrow(jit.function);
    for (Name& own_name : delegated) {
      if (!function || PyUnicode_Compare(name, own_name.get()) != 0) continue;  // one that is computed is not interned
      if (const Ref dict = part_at(self, jit.dict)) {
        if (Ref own = dict_item(dict.get(), name)) return own.release();
      }
      PyObject* value = PyObject_GetAttr(function.get(), name);
      const bool is_of_class =
          value == nullptr && &own_name - delegated < 2 && PyErr_ExceptionMatches(PyExc_AttributeError);
      if (!is_of_class) return value;
      PyErr_Clear();
      return PyObject_GetAttr(reinterpret_cast<PyObject*>(Py_TYPE(function.get())), name);
    }
    return PyObject_GenericGetAttr(self, name);
  });
}

PyObject* get_wrapped(PyObject* self, void*) noexcept {
  return guarded<PyObject*>(nullptr, [&] {
    const JitFunction& jit = as_jit(self);
    PyObject* const function = function_of(jit);
    return jit.self == nullptr ? Py_NewRef(function) : PyMethod_New(function, jit.self);
  });
}

PyObject* get_self(PyObject* self, void*) noexcept {
  const Turn turn;
  const JitFunction& jit = as_jit(self);
  if (jit.self == nullptr && jit.function != nullptr && PyMethod_Check(jit.function)) {
    return Py_NewRef(PyMethod_GET_SELF(jit.function));
  }
  return Py_NewRef(jit.self == nullptr ? Py_None : jit.self);
}

PyObject* get_cache(PyObject* self, void*) noexcept {
  return guarded<PyObject*>(nullptr, [&] { return ready_cache(as_jit(self)).release(); });
}

PyGetSetDef jit_getset[] = {
    {"__wrapped__", get_wrapped, nullptr, "The wrapped callable, bound if the wrapper is.", nullptr},
    {"__self__", get_self, nullptr, "The bound instance, or None.", nullptr},
    {"_cache", get_cache, nullptr, "The cache, shared with all wrappers of equal callables.", nullptr},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyMemberDef jit_members[] = {{"_function", T_OBJECT_EX, offsetof(JitFunction, function), READONLY, nullptr},
                             {"_options", T_OBJECT_EX, offsetof(JitFunction, options), READONLY, nullptr},
                             {"__vectorcalloffset__", T_PYSSIZET, offsetof(JitFunction, vectorcall), READONLY, nullptr},
                             {"__dictoffset__", T_PYSSIZET, offsetof(JitFunction, dict), READONLY, nullptr},
                             {"__weaklistoffset__", T_PYSSIZET, offsetof(JitFunction, weakrefs), READONLY, nullptr},
                             {nullptr, 0, 0, 0, nullptr}};

constexpr char kJitDoc[] =
    "A compiled callable: the result of `filter_jit`, called like the wrapped callable and a pytree of it.";

PyType_Slot jit_slots[] = {{Py_tp_doc, const_cast<char*>(kJitDoc)},
                           {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                           {Py_tp_traverse, reinterpret_cast<void*>(jit_traverse)},
                           {Py_tp_clear, reinterpret_cast<void*>(jit_clear)},
                           {Py_tp_dealloc, reinterpret_cast<void*>(jit_dealloc)},
                           {Py_tp_descr_get, reinterpret_cast<void*>(jit_get)},
                           {Py_tp_getattro, reinterpret_cast<void*>(jit_getattro)},
                           {Py_tp_methods, generic_methods},
                           {Py_tp_getset, jit_getset},
                           {Py_tp_members, jit_members},
                           {0, nullptr}};

constexpr unsigned int kJitFlags =
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION;

// As a function: for `obj.method(x)` the interpreter calls the wrapper with `obj` and `x`, and makes no bound one.
PyType_Spec jit_spec = {"partax._core.JitFunction", sizeof(JitFunction), 0,
                        kJitFlags | Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_BASETYPE, jit_slots};
// Not one that is bound already: found on a class, it is called without the instance.
PyType_Spec bound_spec = {"partax._core.BoundJitFunction", sizeof(JitFunction), 0, kJitFlags, jit_slots};

// Whether anything of an object is traced, or found by its path.
bool is_tree(PyObject* object) {
  TypeTable::instance().epoch();  // classes may have been registered since
  return TypeTable::instance().find(object).kind != Kind::kStaticLeaf || is_dynamic(object, true);
}

}  // namespace

void register_jit_function_types(PyObject* module) {
  jit_type = add_type(module, jit_spec);
  bound_type = add_type(module, bound_spec, jit_type);
  jit_type->tp_flags &= ~Py_TPFLAGS_BASETYPE;  // no other class may be derived from it
  hooks.wrapper.set(reinterpret_cast<PyObject*>(jit_type));
}

void check_is_wrapper(PyObject* object) {
  if (Py_TYPE(object) == jit_type || Py_TYPE(object) == bound_type) return;
  raise_error(PyExc_TypeError, "expected a filter_jit wrapper");
}

JitFunction& as_jit(PyObject* object) noexcept { return *reinterpret_cast<JitFunction*>(object); }

bool has_whole_callable(PyObject* options) { return attribute(options, "static_parameters").get() != Py_None; }

Ref make_jit_function(PyObject* function, PyObject* options) {
  const Ref graph = attribute(options, "graph");
  // A method of a tree is its function with the instance as first argument.
  const bool is_split = PyMethod_Check(function) && !has_whole_callable(options) &&
                        (graph.get() != Py_None || is_tree(PyMethod_GET_SELF(function)));
  return new_jit(function, is_split ? PyMethod_GET_FUNCTION(function) : function,
                 is_split ? PyMethod_GET_SELF(function) : nullptr, options);
}

Ref flatten_jit(PyObject* wrapper) {
  check_is_wrapper(wrapper);
  const JitFunction& jit = as_jit(wrapper);
  PyObject* const function = function_of(jit);
  return Ref::checked(jit.self == nullptr ? Py_BuildValue("((O)O)", function, jit.options)
                                          : Py_BuildValue("((OO)O)", function, jit.self, jit.options));
}

Ref unflatten_jit(PyObject* options, PyObject* children) {
  const Ref parts = Ref::checked(PySequence_Tuple(children));
  const Py_ssize_t size = PyTuple_GET_SIZE(parts.get());
  if (size != 1 && size != 2) raise_error(PyExc_TypeError, "expected options and one or two children");
  PyObject* const function = PyTuple_GET_ITEM(parts.get(), 0);
  return new_jit(function, function, size == 2 ? PyTuple_GET_ITEM(parts.get(), 1) : nullptr, options);
}

}  // namespace partax
