#include "dispatch/call_cache.h"

#include <algorithm>

#include "base/boxed.h"
#include "base/python_hooks.h"
#include "pytree/spec_data.h"

namespace partax {
namespace {

// From partax._jit.options.CallParameters.
Parameters read_parameters(Ref description) {
  const auto field = [&](const char* name) { return attribute(description.get(), name); };
  const Ref names = field("names"), optional = field("optional"), shown_named = field("shown_named");
  Parameters parameters;
  parameters.function = exact_text(field("function").get());
  for (PyObject* name : Items(names.get())) parameters.names.push_back(interned(name));
  for (PyObject* is_optional : Items(optional.get())) parameters.optional.push_back(is_optional == Py_True);
  parameters.num_positional_only = size_of_number(field("num_positional_only").get());
  parameters.num_positional = size_of_number(field("num_positional").get());
  parameters.var_positional = field("var_positional").get() == Py_True;
  parameters.var_keyword = field("var_named").get() == Py_True;
  for (PyObject* name : Items(shown_named.get())) parameters.shown_named.push_back(interned(name));
  parameters.description = std::move(description);
  return parameters;
}

Callables callables_of(PyObject* options) {
  const Ref reuses = attribute(options, "reuse_equal_functions");
  return reuses.get() == Py_True ? Callables::kByStructure : Callables::kByIdentity;
}

}  // namespace

CallCache::CallCache(PyObject* function, PyObject* wrapper_options)
    : parameters(read_parameters(python::call_parameters(function))),
      options(Ref::borrow(wrapper_options)),
      table(size_of_number(attribute(wrapper_options, "cache_size").get())),
      callables(callables_of(wrapper_options)),
      rule(attribute(wrapper_options, "dynamic").get(), attribute(wrapper_options, "static_parameters").get()),
      graph(Ref::borrow(null_if_none(attribute(wrapper_options, "graph").get()))) {}

CallCache& cache_in(PyObject* object) noexcept { return *reinterpret_cast<Boxed<CallCache>*>(object)->value; }

int forget_programs(PyObject* cache) noexcept {
  const Turn turn;
  const CallCache* value = reinterpret_cast<Boxed<CallCache>*>(cache)->value;
  if (value == nullptr) return 0;
  cache_in(cache).table.clear();
  cache_in(cache).history.reset();
  return 0;
}

void flatten_values(TreeSpec& spec, LeafBuffer& leaves, const FlattenOptions& options, PyObject* const* values,
                    std::size_t count, const std::function<Ref()>& names) {
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

// ---- The caches of all callables.

namespace {

// By their static part. It keeps no callable alive: see OrphanedPrograms for how long a cache stays without one.
ProgramTable& shared_caches() {
  static auto* const caches = new ProgramTable(1 << 14);  // never destroyed: the interpreter may be gone by then
  return *caches;
}

// The roots of the paths of what a cache is found by.
Ref root_names() { return Ref::checked(Py_BuildValue("(ss)", "fun", "options")); }

}  // namespace

Ref living_caches(PyObject* callable) {
  std::vector<Ref> caches;
  for (const ProgramPtr& program : shared_caches().all()) {
    if (!program->cache) continue;
    const StaticValue& function = program->key.statics[0];
    const bool is_wanted = callable == Py_None ? program->callables().any_lives : function.is_known_callable(callable);
    if (is_wanted) caches.push_back(program->cache);
  }
  return list_of(std::move(caches));
}

// ---- Which of them a wrapper uses.

namespace {

// Finds the cache of an equal callable with equal options, or makes one; `spec` becomes what it is found by.
Ref find_cache(JitFunction& jit, TreeSpec& spec) {
  const Ref key = attribute(jit.options, "key");
  LeafBuffer leaves;
  FlattenOptions options;
  options.callables = callables_of(jit.options);
  options.static_values = {has_whole_callable(jit.options)};
  PyObject* const values[] = {jit.function, key.get()};
  flatten_values(spec, leaves, options, values, 2, root_names);
  ProgramTable& caches = shared_caches();
  ProgramPtr program = caches.find(spec, CallShape());
  std::string difference;
  if (!program) {
    difference = caches.difference(spec, CallShape()).second;
    program = caches.find_or_insert(spec, CallShape());
  }
  const bool is_new = !program->cache;
  try {
    if (is_new) {
      Ref made = box(std::make_unique<CallCache>(jit.function, jit.options));
      cache_in(made.get()).difference = std::move(difference);
      if (!program->cache) program->cache = std::move(made);  // else another thread was first
    }
  } catch (...) {
    if (is_new) caches.erase(*program);
    throw;
  }
  Ref cache = program->cache;
  cache_in(cache.get()).root = program;
  jit.callable_is_tree = spec.nodes[1].kind != Kind::kStaticLeaf;
  const Ref before = Ref::steal(std::exchange(jit.cache, Py_NewRef(cache.get())));
  return cache;
}

}  // namespace

Ref ready_cache(JitFunction& jit) {
  function_of(jit);
  Ref cache = Ref::borrow(jit.cache);
  return cache ? cache : renewed_cache(jit);
}

Ref renewed_cache(JitFunction& jit) {
  function_of(jit);
  TreeSpec spec;
  return with_static_path(spec, root_names, [&] { return find_cache(jit, spec); });
}

}  // namespace partax
