#include "call/call_cache.h"

#include "base/boxed.h"
#include "base/python_hooks.h"
#include "call/shared_caches.h"
#include "tree/spec_data.h"

namespace partax {
namespace {

// Whoever has the object uses the cache: it stays.
int cache_clear(PyObject* self) noexcept {
  const Turn turn;
  CallCache* cache = reinterpret_cast<Boxed<CallCache>*>(self)->value;
  if (cache == nullptr) return 0;
  cache->table.clear();
  cache->history.reset();
  return 0;
}

PyObject* get_history(PyObject* self, void*) noexcept {
  const Turn turn;
  return Py_NewRef(cache_in(self).history ? cache_in(self).history.get() : Py_None);
}

PyObject* cache_options(PyObject* self, void*) noexcept {
  const Turn turn;
  return Py_NewRef(cache_in(self).options.get());
}

PyObject* cache_entries(PyObject* self, PyObject*) noexcept {
  return guarded<PyObject*>(nullptr, [&] {
    Ref list = Ref::checked(PyList_New(0));
    std::vector<EntryPtr> entries;  // making Python objects may run the garbage collector, which may drop entries
    cache_in(self).table.each([&](const EntryPtr& entry) { entries.push_back(entry); });
    for (const EntryPtr& entry : entries) {
      const Ref log = Ref::checked(PyList_New(0));
      for (const EntryTrace& trace : entry->log) {
        const Ref calls = trace.calls ? Ref::checked(PyLong_FromSize_t(*trace.calls)) : Ref::borrow(Py_None);
        const Ref item = Ref::checked(Py_BuildValue("(nO)", static_cast<Py_ssize_t>(trace.number), calls.get()));
        checked_int(PyList_Append(log.get(), item.get()));
      }
      const Ref item = Ref::checked(Py_BuildValue("(nOO)", static_cast<Py_ssize_t>(entry->calls),
                                                  entry->value ? entry->value.get() : Py_None, log.get()));
      checked_int(PyList_Append(list.get(), item.get()));
    }
    return list.release();
  });
}

PyObject* cache_info(PyObject* self, PyObject*) noexcept {
  const Turn turn;
  const CallCache& cache = cache_in(self);
  std::size_t traces = 0;
  cache.table.each([&](const EntryPtr& entry) { traces += entry->traces; });
  return Py_BuildValue("nnnnnn", static_cast<Py_ssize_t>(cache.table.size()), static_cast<Py_ssize_t>(traces),
                       static_cast<Py_ssize_t>(cache.hits), static_cast<Py_ssize_t>(cache.misses),
                       static_cast<Py_ssize_t>(cache.table.max_size()), static_cast<Py_ssize_t>(cache.loads));
}

PyObject* clear_keys(PyObject* self, PyObject*) noexcept {
  const Turn turn;
  CallCache& cache = cache_in(self);
  cache.table.clear();
  cache.hits = cache.misses = cache.loads = 0;
  Py_RETURN_NONE;
}

PyMethodDef cache_methods[] = {
    {"clear", clear_keys, METH_NOARGS, "Drops every key, trace and executable, and begins to count anew."},
    {"info", cache_info, METH_NOARGS, "(static keys, traces, hits, misses, size limit, loads)"},
    {"entries", cache_entries, METH_NOARGS,
     "[(calls, target, [(number of a trace, its calls or None)])] of every key."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef cache_getset[] = {{"history", get_history, nullptr, "The records of all traces, or None.", nullptr},
                              {"options", cache_options, nullptr, "Those of its wrappers.", nullptr},
                              {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot cache_slots[] = {{Py_tp_methods, reinterpret_cast<void*>(cache_methods)},
                             {Py_tp_getset, reinterpret_cast<void*>(cache_getset)},
                             {Py_tp_doc, const_cast<char*>("What all wrappers of equal callables share.")},
                             {Py_tp_traverse, reinterpret_cast<void*>(Boxed<CallCache>::traverse)},
                             {Py_tp_clear, reinterpret_cast<void*>(cache_clear)},
                             {Py_tp_dealloc, reinterpret_cast<void*>(Boxed<CallCache>::dealloc)},
                             {0, nullptr}};

PyType_Spec cache_spec = {"partax._core.CallCache", sizeof(Boxed<CallCache>), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, cache_slots};

// From partax._jit.parameters.CallParameters.
Parameters read_parameters(Ref description) {
  Parameters parameters;
  const char* function = nullptr;
  PyObject *names = nullptr, *optional = nullptr, *shown_named = nullptr, *for_names = nullptr;
  Py_ssize_t positional_only = 0, positional = 0;
  int var_positional = 0, var_keyword = 0;
  parse_tuple(description.get(), "sO!O!nnppO!OO", &function, &PyTuple_Type, &names, &PyTuple_Type, &optional,
              &positional_only, &positional, &var_positional, &var_keyword, &PyTuple_Type, &shown_named, &for_names,
              &for_names);
  parameters.function = function;
  for (PyObject* name : Items(names)) parameters.names.push_back(interned(name));
  for (PyObject* it : Items(optional)) parameters.optional.push_back(it == Py_True);
  parameters.num_positional_only = static_cast<std::size_t>(positional_only);
  parameters.num_positional = static_cast<std::size_t>(positional);
  parameters.var_positional = var_positional != 0;
  parameters.var_keyword = var_keyword != 0;
  for (PyObject* name : Items(shown_named)) parameters.shown_named.push_back(interned(name));
  parameters.description = std::move(description);
  return parameters;
}

}  // namespace

CallCache& cache_in(PyObject* object) noexcept { return *reinterpret_cast<Boxed<CallCache>*>(object)->value; }

Callables callables_of(PyObject* options) {
  const Ref name = attribute(options, "callables");
  return PyUnicode_CompareWithASCIIString(name.get(), "identity") == 0 ? Callables::kByIdentity
                                                                       : Callables::kByStructure;
}

Ref make_cache(PyObject* function, PyObject* options) {
  Parameters parameters = read_parameters(python::call_parameters(function));
  const Ref size = attribute(options, "cache_size");
  const std::size_t max_size = PyLong_AsSize_t(size.get());
  if (PyErr_Occurred() != nullptr) throw PythonError{};
  const Ref rule = attribute(options, "trace");
  Ref graph = attribute(options, "graph");
  if (graph.get() == Py_None) graph.reset();
  const Ref store = attribute(options, "store");
  const Stored stored = store.get() == Py_None    ? Stored::kAsTold
                        : store.get() == Py_False ? Stored::kNever
                                                  : Stored::kAlways;
  return box(std::make_unique<CallCache>(std::move(parameters), Ref::borrow(options), max_size, callables_of(options),
                                         DynamicRule(rule.get()), std::move(graph), stored));
}

Ref living_caches(PyObject* callable) {
  Ref list = Ref::checked(PyList_New(0));
  std::vector<Ref> caches;
  SharedCaches::instance().each([&](const EntryPtr& entry) {
    if (entry->value && (callable == Py_None || entry->owners.count(callable) != 0)) caches.push_back(entry->value);
  });
  for (const Ref& cache : caches) checked_int(PyList_Append(list.get(), cache.get()));
  return list;
}

void register_cache_type(PyObject* module) { Boxed<CallCache>::type = add_type(module, cache_spec); }

FlattenOptions flatten_options(const CallCache& cache, const BoundCall& call, bool abstract) {
  FlattenOptions options;
  options.abstract = abstract;
  options.callables = cache.callables;
  if (cache.rule.any()) {
    options.rule = &cache.rule;
    options.rule_values =
        cache.rule.values(call.size(), shape_data(cache.parameters, call.shape(), call.has_callable()));
  }
  return options;
}

Ref call_data(const CallCache& cache, const BoundCall& call, bool abstract, LeafBuffer& leaves) {
  TreeSpec spec;
  FlattenOptions options = flatten_options(cache, call, abstract);
  options.hashed = false;
  options.keyed = true;
  const Ref names = value_names(cache.parameters, call.shape(), call.has_callable());
  flatten_call(spec, leaves, options, call.values(), call.size(), [&] { return Ref::borrow(names.get()); });
  return spec_data(spec, names);
}

}  // namespace partax
