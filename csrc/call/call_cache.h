// The cache of one callable: its parameters, its options, and the entries of its calls by their static part.
#pragma once

#include <string>

#include "call/bound_call.h"
#include "call/entry_table.h"
#include "tree/flatten.h"

namespace partax {

// Whether its programs are stored: as the switch says, or as the option does.
enum class Stored : std::uint8_t { kAsTold, kNever, kAlways };

// What all wrappers of equal callables with equal options share.
struct CallCache {
  CallCache(Parameters named, Ref of, std::size_t max_size, Callables how, DynamicRule traced, Ref changing,
            Stored kept)
      : parameters(std::move(named)),
        options(std::move(of)),
        table(max_size, [](const EntryPtr& entry, bool) { return survives_owner(*entry); }),
        callables(how),
        rule(std::move(traced)),
        graph(std::move(changing)),
        stored(kept) {}

  int traverse(visitproc visit, void* arg) const {
    for (const Ref* it : {&options, &history, &graph, &parameters.description}) Py_VISIT(it->get());
    if (const int status = rule.traverse(visit, arg)) return status;
    return table.traverse(visit, arg);
  }

  Parameters parameters;
  Ref options;
  EntryTable table;
  Callables callables;
  DynamicRule rule;
  Ref graph;  // the option of that name; null where the function is to change no argument
  Stored stored;
  std::weak_ptr<Entry> root;  // where wrappers find this cache
  std::size_t hits = 0;
  std::size_t misses = 0;
  std::size_t loads = 0;
  Ref history;             // the records of its traces, which outlive its keys; empty before the first one
  std::string difference;  // what made its callable another one than the latest of the same code; empty: there was none
};

void register_cache_type(PyObject* module);
// A cache for a callable that has none yet.
Ref make_cache(PyObject* function, PyObject* options);
// The caller must hold `object` for as long as it uses the cache.
CallCache& cache_in(PyObject* object) noexcept;
// What the option `callables` says.
Callables callables_of(PyObject* options);
// The caches of all callables that live, or of one unless it is None.
Ref living_caches(PyObject* callable);

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

// What the values of a call are flattened to, as Python takes it: see `spec_data`.
Ref call_data(const CallCache& cache, const BoundCall& call, bool abstract, LeafBuffer& leaves);

}  // namespace partax
