#include <algorithm>

#include "base/python_hooks.h"
#include "call/trace.h"
#include "tree/spec_data.h"

namespace partax {
namespace {

// For each leaf 1 or 0.
using Flags = std::vector<std::uint8_t>;

// (object, flags) from Python.
std::pair<Ref, Flags> with_flags(const Ref& made) {
  PyObject *object = nullptr, *flags = nullptr;
  parse_tuple(made.get(), "OO!", &object, &PyBytes_Type, &flags);
  const char* bytes = PyBytes_AS_STRING(flags);
  return {Ref::borrow(object), Flags(bytes, bytes + PyBytes_GET_SIZE(flags))};
}

// Whether some trace of the entry gives a leaf back as it came that is flagged.
bool forwards_any(const Entry& entry, const Flags& flags) {
  return std::any_of(entry.forwarded.begin(), entry.forwarded.end(), [&](std::uint32_t i) { return flags.at(i) != 0; });
}

// The function that jax traces, with the options of its jax.jit. The first thread's counts: jax traces a function once
// for all threads, and each function anew.
Ref traced_function(CallFrame& frame, Entry& entry, const Ref& leaves) {
  if (entry.function) return entry.function;
  TreeSpec spec;
  LeafBuffer arrays;
  flatten_unchanged(frame, spec, arrays);
  const Call& call = frame.call;
  const Ref described = spec_data(spec, call.names());
  frame.described = described;
  auto [function, sharded] = with_flags(python::function_to_trace(
      call.cache().options, call.jit().function, call.values(), leaves, described, truth(call.bound().has_callable())));
  if (!entry.function) {
    entry.function = function;
    entry.not_forwardable = std::move(sharded);
  }
  return entry.function;
}

// The programs of the key that are stored, if they are to be; else None.
Ref find_stored(const CallCache& cache, const Ref& function, const Ref& leaves) {
  const Stored stored = cache.stored;
  if (stored == Stored::kNever || (stored == Stored::kAsTold && !programs_are_stored)) return Ref::borrow(Py_None);
  return python::stored_programs(cache.options, leaves, function);
}

}  // namespace

bool programs_are_stored = false;

bool build_target(CallFrame& frame, Entry& entry, const LeafBuffer& leaves) {
  const Ref tuple = leaves.tuple();
  const Ref function = traced_function(frame, entry, tuple);
  Ref stored;  // found once, before this call traces
  while (!entry.value) {
    const Ref kept = tuple_of_numbers(std::vector<std::uint32_t>(entry.forwarded));
    Ref made, program;
    try {
      if (!stored) stored = find_stored(frame.call.cache(), function, tuple);
      frame.is_stored = stored.get() != Py_None;
      if (frame.is_stored) program = attribute(stored.get(), "program");
      made = python::made_target(frame.call.cache().options, function, tuple, kept, stored);
    } catch (const PythonError&) {
      frame.in_user_code = true;  // it may have traced, which fails as the call itself would
      explain_failure(frame);
      throw;
    }
    auto [target, donated] = with_flags(made);
    const Ref takes_tuple = attribute(function.get(), "takes_tuple");
    // From here on no Python runs: a trace either is in `forwarded`, or sees what goes through XLA.
    if (entry.value) break;
    if (forwards_any(entry, donated)) continue;
    for (std::size_t i = 0; i < donated.size(); ++i) entry.not_forwardable[i] |= donated[i];
    if (std::count(donated.begin(), donated.end(), 0) != static_cast<std::ptrdiff_t>(donated.size())) {
      entry.donated = std::move(donated);
    }
    entry.takes_tuple = takes_tuple.get() == Py_True;
    entry.value = std::move(target);
    entry.program = std::move(program);
    if (frame.is_stored) entry.stored = std::move(stored);
    const Ref done = std::move(entry.function);
    return true;
  }
  return false;
}

}  // namespace partax
