// The cache of one callable: its parameters, its options, and the programs of its calls by their static part; and which
// cache a wrapper uses, that of all callables like its own.
#pragma once

#include <functional>

#include "dispatch/bound_call.h"
#include "dispatch/jit_function.h"
#include "dispatch/program_table.h"
#include "pytree/flatten.h"

namespace partax {

// What all wrappers of equal callables with equal options share.
struct CallCache {
  CallCache(PyObject* function, PyObject* options);

  int traverse(visitproc visit, void* arg) const {
    return visit_all(visit, arg, options, history, graph, parameters.description, rule, table);
  }

  Parameters parameters;
  Ref options;
  ProgramTable table;
  Callables callables;
  DynamicRule rule;
  struct ValueFlags {
    CallShape shape;
    std::vector<bool> has_rule, is_static;
  } flags;                      // what `rule` says of each value, for the latest shape of a call: Python decides it
  Ref graph;                    // the option of that name; null where the function is to change no argument
  std::weak_ptr<Program> root;  // where wrappers find this cache
  bool has_traced = false;
  struct Counts {
    std::size_t traces = 0, hits = 0, misses = 0, loads = 0;
  } counts;                // since it was cleared, also of programs that were dropped
  Ref history;             // the records of its traces, which outlive its keys; empty before the first one
  std::string difference;  // why its callable is not an earlier one of the same code; empty: there was none
};

// What is in such a Python object. The collector lets it be: whoever has the object uses the cache.
CallCache& cache_in(PyObject* object) noexcept;
int forget_programs(PyObject* cache) noexcept;
// The caches of all callables that live, or of one unless it is None.
Ref living_caches(PyObject* callable);

// The cache of a wrapper, found or made; it stays whatever other threads do to the wrapper meanwhile.
Ref ready_cache(JitFunction& jit);
// The same, by what the callable is now, whatever it was when the cache was found.
Ref renewed_cache(JitFunction& jit);

// Flattens some values; `names()` gives the roots of their paths, for errors only. Raises PythonError.
void flatten_values(TreeSpec& spec, LeafBuffer& leaves, const FlattenOptions& options, PyObject* const* values,
                    std::size_t count, const std::function<Ref()>& names);

}  // namespace partax
