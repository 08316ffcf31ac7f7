#include "call/run_call.h"

#include "call/cache_object.h"
#include "call/call_target.h"
#include "call/explain_failure.h"
#include "call/find_cache.h"
#include "call/find_entry.h"
#include "call/forwarded.h"
#include "call/graph_objects.h"
#include "call/user_result.h"

namespace partax {
namespace {

bool may_raise_at_run_time(const Ref& target, const Entry& entry, const LeafBuffer& leaves) {
  const Ref arguments = entry.takes_tuple ? Ref::checked(PyTuple_Pack(1, leaves.tuple().get())) : leaves.tuple();
  return call_python("partax._jit.runtime_errors", "may_raise", target, arguments).get() == Py_True;
}

[[noreturn]] void refuse_shared_result() {
  PyErr_SetString(PyExc_RuntimeError,
                  "found an object in the result that can be changed and is made by the trace, in a first call that "
                  "donates arrays and ran in several threads at once, expected one for each call; call the function "
                  "once before the threads do, or return what cannot be changed");
  throw PythonError{};
}

}  // namespace

Ref run_call(JitFunction& jit, PyObject* const* args, std::size_t num_args, PyObject* keyword_names) {
  const Ref keep_cache = ready_cache(jit);
  CallCache& cache = cache_in(keep_cache.get());
  BoundCall call(cache.parameters, jit.callable_is_tree ? jit.function : nullptr, jit.self, args, num_args,
                 keyword_names);
  LeafBuffer leaves;
  CallFrame frame(jit, cache, call, false);
  GraphObjects objects(call);
  if (cache.graph) {
    take_static_cache();
    frame.objects = &objects;
  }
  bool is_new = false;
  EntryPtr entry;
  Ref returned;
  try {
    entry = find_entry(frame, leaves, is_new);
    frame.entry = entry.get();
    if (may_lose_forwarded(*entry, leaves)) refuse_lost_forwarded(*entry, leaves);
    const Ref target = entry->value;
    returned = call_target(target.get(), *entry, leaves);
    frame.in_user_code = true;
    if (frame.holds_errors && !entry->waits) entry->waits = may_raise_at_run_time(target, *entry, leaves);
    if (entry->waits) call_python("partax._jit.runtime_errors", "wait_for", returned);
    if (frame.record) call_python("partax._report.monitor", "note_run", frame.record);
  } catch (const PythonError&) {
    frame.in_user_code = true;
    if (entry) {
      cache.table.erase_untraced(*entry);
      explain_failure(frame);
    }
    throw;
  }
  check_forwarded(*entry, returned.get(), leaves, !frame.traced);
  keep_nodes(frame, *entry, leaves);
  if (entry->is_of_one_call) {
    cache.table.erase(*entry);
    if (is_given_away(returned.get())) {  // to a call in another thread, which was the first at the same moment
      if (!entry->donated.empty()) refuse_shared_result();
      return run_call(jit, args, num_args, keyword_names);
    }
  }
  Ref result = user_result(returned.get(), leaves);
  if (cache.graph) {
    objects.learn(*entry, leaves);
    result = objects.apply(result, *entry, leaves);
  }
  ++entry->calls;
  ++(frame.traced || is_new ? cache.misses : cache.hits);
  return result;
}

}  // namespace partax
