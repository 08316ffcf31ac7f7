// One call: its frame, the cache of its callable, and how the entry of its static part is found.
#pragma once

#include <string>

#include "base/python_api.h"
#include "cache/bound_call.h"
#include "cache/entry_table.h"
#include "tree/flatten.h"
#include "tree/leaf_buffer.h"

namespace partax {

// What all wrappers of equal callables with equal options share.
struct CallCache {
  CallCache(Parameters named, Ref of, std::size_t max_size, Callables how, TraceRule traced)
      : parameters(std::move(named)),
        options(std::move(of)),
        table(max_size, [](const EntryPtr& entry, bool) { return may_wait(*entry); }),
        callables(how),
        rule(std::move(traced)) {}

  Parameters parameters;
  Ref options;
  StaticTable table;
  Callables callables;
  TraceRule rule;
  std::weak_ptr<Entry> root;  // where wrappers find this cache
  std::size_t hits = 0;
  std::size_t misses = 0;
  Ref history;             // the records of its traces, which outlive its keys; empty before the first one
  std::string difference;  // what made its callable another one than the latest of the same code; empty: there was none
};

// A call under way, innermost first; where a trace finds the user's arguments.
struct CallFrame {
  CallFrame(PyObject* function, CallCache& cache, const BoundCall& call, bool abstract) noexcept;
  ~CallFrame();
  CallFrame(const CallFrame&) = delete;
  CallFrame& operator=(const CallFrame&) = delete;
  // The call that runs now in this thread, or null.
  static CallFrame* innermost() noexcept;

  PyObject* function;  // the wrapped callable
  CallCache& cache;
  const BoundCall& call;
  Entry* entry = nullptr;
  CallFrame* outer;
  Ref on_exit;  // called without arguments when the call ends
  Ref record;   // of the trace that this call has made or is compiled for, if any
  bool abstract;
  bool traced = false;
  bool in_body = false;       // of its trace; it stays so where the body has failed
  bool in_user_code = false;  // what jax does now is not for this call's own target
};

// The roots of the paths of a call's values: a tuple.
Ref names_of(const CallFrame& frame);

// How the values of a call are flattened.
FlattenOptions flatten_options(const CallCache& cache, const BoundCall& call, bool abstract);

// Flattens the values of a call; `names()` gives the roots of their paths, for errors only. Raises PythonError.
template <typename GetNames>
void flatten_call(TreeSpec& spec, LeafBuffer& leaves, const FlattenOptions& options, PyObject* const* values,
                  std::size_t count, GetNames&& names) {
  try {
    Flattener(spec, leaves, options).call(values, count);
  } catch (const WalkError& error) {
    const Ref roots = names();
    PyObject* root = PyTuple_GetItem(roots.get(), static_cast<Py_ssize_t>(error.origin()));
    if (root == nullptr) throw PythonError{};
    error.raise(exact_text(root));
    throw PythonError{};
  }
}

// What the values of a call are flattened to, as Python takes it: see `described`.
Ref described_call(const CallCache& cache, const BoundCall& call, bool abstract, LeafBuffer& leaves);

// The entry of the call's static part, and its dynamic leaves. A new one has its target made; `is_new` tells.
EntryPtr find_entry(CallFrame& frame, LeafBuffer& leaves, bool& is_new);

// A target may fail on an argument before it traces. Then Python may put an exception with the argument's path in the
// place of the one that is set. The frame must be the innermost.
void explain_failure(const CallFrame& frame);

}  // namespace partax
