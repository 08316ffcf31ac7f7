#include "call/call.h"

#include <algorithm>

#include "tree/described.h"
#include "tree/match.h"

namespace partax {
namespace {

thread_local CallFrame* innermost_frame = nullptr;

// For each leaf 1 or 0.
using Flags = std::vector<std::uint8_t>;

// (object, flags) from Python.
std::pair<Ref, Flags> with_flags(const Ref& made) {
  PyObject *object = nullptr, *flags = nullptr;
  if (!PyArg_ParseTuple(made.get(), "OO!", &object, &PyBytes_Type, &flags)) throw PythonError{};
  const char* bytes = PyBytes_AS_STRING(flags);
  return {Ref::borrow(object), Flags(bytes, bytes + PyBytes_GET_SIZE(flags))};
}

// Whether some trace of the entry gives a leaf back as it came that is flagged.
bool forwards_any(const Entry& entry, const Flags& flags) {
  return std::any_of(entry.forwarded.begin(), entry.forwarded.end(), [&](std::uint32_t i) { return flags.at(i) != 0; });
}

// The function that jax traces, with the options of its jax.jit. The first thread's counts: jax traces a function once
// for all threads, and each function anew.
Ref traced_function(const CallFrame& frame, Entry& entry, const Ref& leaves) {
  if (entry.function) return entry.function;
  const Ref values = tuple_of(frame.call.values(), frame.call.size());
  auto [function, sharded] =
      with_flags(call_python("partax._jit.target", "traced_function", frame.cache.options, frame.function, values,
                             leaves, frame.call.has_callable() ? Py_True : Py_False));
  if (!entry.function) {
    entry.function = function;
    entry.through_xla = std::move(sharded);
  }
  return entry.function;
}

// Python makes the jax.jit target, and may trace it to know which arguments it must not donate. Tells whether it did,
// or another thread was first.
bool build_target(CallFrame& frame, Entry& entry, const LeafBuffer& leaves) {
  const Ref tuple = leaves.tuple();
  const Ref function = traced_function(frame, entry, tuple);
  while (!entry.value) {
    std::vector<Ref> kept;
    for (const std::uint32_t i : std::vector<std::uint32_t>(entry.forwarded)) {
      kept.push_back(Ref::checked(PyLong_FromUnsignedLong(i)));
    }
    auto [target, donated] = with_flags(call_python("partax._jit.target", "build_target", frame.cache.options, function,
                                                    tuple, tuple_of(std::move(kept))));
    // From here on no Python runs: a trace either is in `forwarded`, or sees what goes through XLA.
    if (entry.value) break;
    if (forwards_any(entry, donated)) continue;
    for (std::size_t i = 0; i < donated.size(); ++i) entry.through_xla[i] |= donated[i];
    if (std::count(donated.begin(), donated.end(), 0) != static_cast<std::ptrdiff_t>(donated.size())) {
      entry.donated = std::move(donated);
    }
    entry.value = std::move(target);
    const Ref done = std::move(entry.function);
    return true;
  }
  return false;
}

// The static values of a call for which its key has equal ones.
void add_own_statics(const TreeSpec& key, const TreeSpec& spec, LeafBuffer& leaves) {
  for (std::size_t i = 0; i < key.statics.size(); ++i) {
    PyObject* value = spec.statics[i].identity();
    if (value != nullptr && !key.statics[i].is_object(value)) leaves.add_own_static(i, value);
  }
}

// The entry of a call that differs from the last one. Fills `leaves`.
EntryPtr look_up(CallFrame& frame, LeafBuffer& leaves, bool& is_new) {
  CallCache& cache = frame.cache;
  TreeSpec spec;
  const FlattenOptions options = flatten_options(cache, frame.call, frame.abstract);
  flatten_call(spec, leaves, options, frame.call.values(), frame.call.size(), [&] { return names_of(frame); });
  EntryPtr entry;
  try {
    entry = cache.table.find_or_insert(spec, frame.call.shape());
  } catch (const WalkError& error) {
    raise_at_static(error, spec, names_of(frame));
  }
  add_own_statics(entry->key, spec, leaves);
  if (entry->value) return entry;
  frame.entry = entry.get();
  try {
    if (const auto [index, reading] = cache.table.difference(spec, frame.call.shape()); !reading.empty()) {
      entry->difference = static_path(spec, names_of(frame), index) + ": a callable made anew (reads " + reading +
                          ", which cannot be proven unchanged)";
    }
    is_new = build_target(frame, *entry, leaves);
  } catch (...) {
    cache.table.erase_untraced(*entry);
    throw;
  }
  return entry;
}

}  // namespace

CallFrame::CallFrame(PyObject* function_, CallCache& cache_, const BoundCall& call_, bool abstract_) noexcept
    : function(function_), cache(cache_), call(call_), outer(innermost_frame), abstract(abstract_) {
  innermost_frame = this;
}

CallFrame* CallFrame::innermost() noexcept { return innermost_frame; }

CallFrame::~CallFrame() {
  innermost_frame = outer;
  if (!on_exit) return;
  // A result or an exception is on its way to the caller: the callback must not disturb it.
  const bool failed = PyErr_Occurred() != nullptr;
  Ref exception = failed ? take_exception() : Ref();
  const Ref done = Ref::steal(PyObject_CallNoArgs(on_exit.get()));
  if (!done) PyErr_WriteUnraisable(on_exit.get());
  if (failed) restore_exception(std::move(exception));
}

FlattenOptions flatten_options(const CallCache& cache, const BoundCall& call, bool abstract) {
  FlattenOptions options;
  options.abstract = abstract;
  options.callables = cache.callables;
  if (cache.rule.any()) {
    options.rule = &cache.rule;
    options.rule_values =
        cache.rule.values(call.size(), [&] { return shape_data(cache.parameters, call.shape(), call.has_callable()); });
  }
  return options;
}

Ref names_of(const CallFrame& frame) {
  return value_names(frame.cache.parameters, frame.call.shape(), frame.call.has_callable());
}

Ref described_call(const CallCache& cache, const BoundCall& call, bool abstract, LeafBuffer& leaves) {
  TreeSpec spec;
  FlattenOptions options = flatten_options(cache, call, abstract);
  options.hashed = false;
  options.keyed = true;
  const Ref names = value_names(cache.parameters, call.shape(), call.has_callable());
  flatten_call(spec, leaves, options, call.values(), call.size(), [&] { return Ref::borrow(names.get()); });
  return described(spec, names);
}

EntryPtr find_entry(CallFrame& frame, LeafBuffer& leaves, bool& is_new) {
  CallCache& cache = frame.cache;
  const auto matches = [&](const Entry& entry) {
    return entry.value && entry.epoch == TypeTable::instance().epoch() && entry.shape == frame.call.shape() &&
           match_call(entry.key, frame.call.values(), frame.call.size(), leaves, frame.abstract, &cache.rule);
  };
  EntryPtr latest = cache.table.latest();
  if (!latest) return look_up(frame, leaves, is_new);
  if (matches(*latest)) return latest;
  // Calls that alternate or go round between static keys are known without hashing.
  EntryPtr entry = latest->successor.lock();
  if (entry && entry->in_table && matches(*entry)) {
    if (entry->in_table) cache.table.touch(*entry);
    return entry;
  }
  entry = look_up(frame, leaves, is_new);
  latest->successor = entry;
  return entry;
}

void explain_failure(const CallFrame& frame) {
  if (PyErr_ExceptionMatches(PyExc_ValueError) == 0 && PyErr_ExceptionMatches(PyExc_TypeError) == 0) return;
  Ref original = take_exception();
  restore_exception(call_python("partax._jit.failures", "explain_failure", original, frame.cache.options,
                                tuple_of(frame.call.values(), frame.call.size()), frame.traced ? Py_True : Py_False,
                                frame.in_body ? Py_True : Py_False));
}

}  // namespace partax
