#include "compiled_call.h"

#include <structmember.h>

#include "cache_object.h"
#include "forwarded.h"
#include "match.h"
#include "trace_output.h"

namespace partax {
namespace {

struct CompiledCall {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject* jit;
  PyObject* executable;
  EntryPtr* entry;
};

PyTypeObject* compiled_type = nullptr;

CompiledCall& as_compiled(PyObject* object) noexcept { return *reinterpret_cast<CompiledCall*>(object); }

Ref run(const CompiledCall& compiled, PyObject* const* args, std::size_t num_args, PyObject* keyword_names) {
  const EntryPtr entry = *compiled.entry;
  const Ref executable = Ref::borrow(compiled.executable);
  JitFunction& jit = as_jit(compiled.jit);
  const Ref keep_cache = ready_cache(jit);
  CallCache& cache = cache_in(keep_cache.get());
  const BoundCall call(cache.parameters, jit.function, jit.callable_is_tree ? jit.function : nullptr, jit.self, args,
                       num_args, keyword_names);
  LeafBuffer leaves;
  if (!(entry->shape == call.shape()) ||
      !match_call(entry->key, call.values(), call.size(), leaves, false, &cache.rule)) {
    PyErr_SetString(PyExc_TypeError, "the static part of the arguments is not the compiled one");
    throw PythonError{};
  }
  if (may_lose_forwarded(*entry, leaves)) {
    CallFrame frame(jit.function, cache, call, false);
    frame.entry = entry.get();
    refuse_lost_forwarded(*entry, leaves);
  }
  const Ref returned = Ref::checked(PyObject_Vectorcall(executable.get(), leaves.arguments(),
                                                        leaves.size() | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
  check_forwarded(*entry, returned.get(), leaves, true);
  return user_result(returned.get(), leaves);
}

PyObject* compiled_vectorcall(PyObject* self, PyObject* const* args, std::size_t nargsf,
                              PyObject* keyword_names) noexcept {
  return guarded<PyObject*>(nullptr, [&] {
    const Ref keep = Ref::borrow(self);
    return run(as_compiled(self), args, static_cast<std::size_t>(PyVectorcall_NARGS(nargsf)), keyword_names).release();
  });
}

int compiled_traverse(PyObject* self, visitproc visit, void* arg) noexcept {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(as_compiled(self).jit);
  Py_VISIT(as_compiled(self).executable);
  return 0;
}

// Without tp_clear: a cycle through it has the wrapper in it, which breaks it.
void compiled_dealloc(PyObject* self) noexcept {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  Py_CLEAR(as_compiled(self).jit);
  Py_CLEAR(as_compiled(self).executable);
  delete std::exchange(as_compiled(self).entry, nullptr);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMemberDef compiled_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(CompiledCall, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

PyType_Slot compiled_slots[] = {{Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                                {Py_tp_traverse, reinterpret_cast<void*>(compiled_traverse)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(compiled_dealloc)},
                                {Py_tp_members, compiled_members},
                                {0, nullptr}};

PyType_Spec compiled_spec = {
    "partax._core.CompiledCall", sizeof(CompiledCall), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    compiled_slots};

}  // namespace

void register_compiled_call_type() {
  compiled_type = reinterpret_cast<PyTypeObject*>(Ref::checked(PyType_FromSpec(&compiled_spec)).release());
}

Ref make_compiled_call(PyObject* jit, EntryPtr entry, PyObject* executable) {
  auto held = std::make_unique<EntryPtr>(std::move(entry));
  Ref object = Ref::checked(compiled_type->tp_alloc(compiled_type, 0));
  CompiledCall& compiled = as_compiled(object.get());
  compiled.vectorcall = compiled_vectorcall;
  compiled.jit = Py_NewRef(jit);
  compiled.executable = Py_NewRef(executable);
  compiled.entry = held.release();
  return object;
}

}  // namespace partax
