#include "call/compiled_call.h"

#include "base/binding.h"
#include "call/cache_object.h"
#include "call/call_frame.h"
#include "call/call_target.h"
#include "call/find_cache.h"
#include "call/find_entry.h"
#include "call/forwarded.h"
#include "call/graph_objects.h"
#include "call/prepared_call.h"
#include "call/user_result.h"
#include "tree/match.h"

namespace partax {
namespace {

Ref run(const EntryPtr& entry, JitFunction& jit, PyObject* executable, PyObject* const* args, std::size_t num_args,
        PyObject* keyword_names) {
  const Ref keep_cache = ready_cache(jit);
  CallCache& cache = cache_in(keep_cache.get());
  BoundCall call(cache.parameters, jit.callable_is_tree ? jit.function : nullptr, jit.self, args, num_args,
                 keyword_names);
  LeafBuffer leaves;
  GraphObjects objects(call);
  const auto matches = [&] {
    const MadeAnew made_anew;
    return entry->shape == call.shape() &&
           match_call(entry->key, call.values(), call.size(), leaves, false, &cache.rule) &&
           !entry->objects_apart(leaves) && is_for(*entry, jit.callable, made_anew, leaves);
  };
  bool is_such = matches() && (!cache.graph || objects.are_in(*entry, leaves));
  if (!is_such && cache.graph) {
    leaves.clear();
    const CallFrame frame(jit, cache, call, false);
    objects.read();
    is_such = matches();
  }
  if (!is_such) {
    PyErr_SetString(PyExc_TypeError, "the static part of the arguments is not the compiled one");
    throw PythonError{};
  }
  if (entry->is_of_one_call) {
    PyErr_SetString(PyExc_TypeError,
                    "found an object in the result that can be changed and is made by the trace, expected one for each "
                    "call; call the function itself, which traces each time, or return what cannot be changed");
    throw PythonError{};
  }
  if (may_lose_forwarded(*entry, leaves)) {
    CallFrame frame(jit, cache, call, false);
    frame.entry = entry.get();
    refuse_lost_forwarded(*entry, leaves);
  }
  const Ref returned = call_target(executable, *entry, leaves);
  check_forwarded(*entry, returned.get(), leaves, true);
  Ref result = user_result(returned.get(), leaves);
  if (!cache.graph) return result;
  const CallFrame frame(jit, cache, call, false);
  return objects.apply(result, *entry, leaves);
}

// `self` is (prepared call, executable): the collector finds all that it needs.
PyObject* call_compiled(PyObject* self, PyObject* const* args, Py_ssize_t num_args, PyObject* keyword_names) noexcept {
  return guarded<PyObject*>(nullptr, [&] {
    const Ref keep = Ref::borrow(self);
    const PreparedCall& prepared = Boxed<PreparedCall>::in(PyTuple_GET_ITEM(self, 0));
    return run(prepared.entry(), as_jit(prepared.jit()), PyTuple_GET_ITEM(self, 1), args,
               static_cast<std::size_t>(num_args), keyword_names)
        .release();
  });
}

PyMethodDef call_method_def = {"compiled", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call_compiled)),
                               METH_FASTCALL | METH_KEYWORDS, nullptr};

}  // namespace

Ref make_compiled_call(PyObject* prepared, PyObject* executable) {
  const Ref self = Ref::checked(PyTuple_Pack(2, prepared, executable));
  return Ref::checked(PyCFunction_New(&call_method_def, self.get()));
}

}  // namespace partax
