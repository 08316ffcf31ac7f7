#include "jit_function.h"

#include <structmember.h>

#include <unordered_map>

#include "flatten.h"
#include "match.h"
#include "rebuild.h"
#include "trace_output.h"

namespace partax {
namespace {

struct CallCacheObject {
  PyObject_HEAD
  CallCache* cache;
};

PyTypeObject* jit_type = nullptr;
PyTypeObject* cache_type = nullptr;
thread_local CallFrame* innermost = nullptr;

JitFunction& as_jit(PyObject* object) noexcept { return *reinterpret_cast<JitFunction*>(object); }
CallCache& cache_of(const JitFunction& jit) noexcept { return *reinterpret_cast<CallCacheObject*>(jit.cache)->cache; }

// The caches of callables by their static part. It keeps no callable alive: functions and classes are held weakly, and
// their cache goes when they do.
StaticTable& shared_caches() {
  static auto* const table = new StaticTable(1 << 14);
  return *table;
}

using Names = std::vector<std::string>;

// Flattens the values of a call; `names()` gives the roots of their paths, for errors only.
template <typename GetNames>
void flatten_call(TreeSpec& spec, LeafBuffer& leaves, const FlattenOptions& options, PyObject* const* values,
                  std::size_t count, GetNames&& names) {
  try {
    Flattener(spec, leaves, options).call(values, count);
  } catch (const WalkError& error) {
    error.raise(names().at(error.origin()));
    throw PythonError{};
  }
}

[[noreturn]] void raise_at_static(const WalkError& error, const TreeSpec& spec, const Names& names) {
  error.raise(static_path(spec, names, error.origin()));
  throw PythonError{};
}

Names names_of(const CallFrame& frame) {
  return value_names(frame.cache.parameters, frame.call.shape(), frame.call.has_callable());
}

// ---- The stages of a call.

// A target may fail on an argument before it traces; then the leaf at fault is named by its path.
void explain_failure(const CallFrame& frame, const LeafBuffer& leaves);

Ref leaf_owners(const TreeSpec& spec) {
  Ref owners = Ref::checked(PyList_New(0));
  std::size_t at = 1;
  for (std::uint32_t value = 0; value < spec.nodes[0].arity;) {
    const Node& child = spec.nodes[at];
    const std::size_t end = at + child.extent;
    for (std::size_t i = at; i < end; ++i) {
      if (spec.nodes[i].kind != Kind::kDynamicLeaf) continue;
      Ref index = Ref::checked(PyLong_FromUnsignedLong(value));
      checked_int(PyList_Append(owners.get(), index.get()));
    }
    value += child.kind == Kind::kStaticRun ? child.arity : 1;
    at = end;
  }
  return owners;
}

Ref string_tuple(const Names& strings) {
  Ref tuple = Ref::checked(PyTuple_New(static_cast<Py_ssize_t>(strings.size())));
  for (std::size_t i = 0; i < strings.size(); ++i) {
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), unicode(strings[i]).release());
  }
  return tuple;
}

// Python makes the jax.jit target, and may trace it to know which arguments it must not donate.
void build_target(CallFrame& frame, Entry& entry, const LeafBuffer& leaves) {
  const Ref owners = leaf_owners(entry.key);
  const Ref tuple = leaves.tuple();
  const Ref values = Ref::checked(PyTuple_New(static_cast<Py_ssize_t>(frame.call.size())));
  for (std::size_t i = 0; i < frame.call.size(); ++i) {
    PyTuple_SET_ITEM(values.get(), static_cast<Py_ssize_t>(i), Py_NewRef(frame.call.values()[i]));
  }
  const Ref built = Ref::checked(PyObject_CallFunctionObjArgs(
      hooks().build_target.get(), frame.cache.options.get(), frame.jit.function, string_tuple(names_of(frame)).get(),
      values.get(), owners.get(), tuple.get(), frame.call.has_callable() ? Py_True : Py_False, nullptr));
  PyObject *target = nullptr, *pinned = nullptr;
  if (!PyArg_ParseTuple(built.get(), "OO!", &target, &PyBytes_Type, &pinned)) throw PythonError{};
  const char* bytes = PyBytes_AS_STRING(pinned);
  entry.pinned.assign(bytes, bytes + PyBytes_GET_SIZE(pinned));
  entry.value = Ref::borrow(target);
}

// The entry of a call that differs from the last one. Fills `leaves`.
EntryPtr look_up(CallFrame& frame, LeafBuffer& leaves, bool& is_new) {
  CallCache& cache = frame.cache;
  TreeSpec spec;
  FlattenOptions options;
  options.abstract = frame.abstract;
  flatten_call(spec, leaves, options, frame.call.values(), frame.call.size(), [&] { return names_of(frame); });
  EntryPtr entry;
  try {
    entry = cache.table.find(spec, frame.call.shape());
    if (entry && entry->value) return entry;
    if (!entry) entry = cache.table.insert(spec, frame.call.shape());
  } catch (const WalkError& error) {
    raise_at_static(error, spec, names_of(frame));
  }
  is_new = true;
  frame.entry = entry.get();
  try {
    build_target(frame, *entry, leaves);
  } catch (...) {
    if (entry->traces == 0) cache.table.erase(*entry);
    throw;
  }
  return entry;
}

EntryPtr find_entry(CallFrame& frame, LeafBuffer& leaves, bool& is_new) {
  CallCache& cache = frame.cache;
  const auto matches = [&](const Entry& entry) {
    return entry.value && entry.epoch == TypeTable::instance().epoch() && entry.shape == frame.call.shape() &&
           match_call(entry.key, frame.call.values(), frame.call.size(), leaves, frame.abstract);
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

void ensure_cache(JitFunction& jit);  // below, with the shared caches

Ref run(JitFunction& jit, PyObject* const* args, std::size_t num_args, PyObject* keyword_names) {
  ensure_cache(jit);
  const Ref keep_cache = Ref::borrow(jit.cache);
  CallCache& cache = cache_of(jit);
  const BoundCall call(cache.parameters, jit.function, jit.callable_is_tree ? jit.function : nullptr, jit.self, args,
                       num_args, keyword_names);
  LeafBuffer leaves;
  CallFrame frame(jit, cache, call, false);
  bool is_new = false;
  const EntryPtr entry = find_entry(frame, leaves, is_new);
  frame.entry = entry.get();
  const Ref target = entry->value;
  const Ref returned = Ref::steal(
      PyObject_Vectorcall(target.get(), leaves.arguments(), leaves.size() | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
  if (!returned) {
    if (is_new && entry->traces == 0) cache.table.erase(*entry);
    explain_failure(frame, leaves);
    throw PythonError{};
  }
  ++(frame.traced || is_new ? cache.misses : cache.hits);
  return user_result(returned.get(), leaves);
}

void explain_failure(const CallFrame& frame, const LeafBuffer& leaves) {
  if (frame.traced || PyErr_ExceptionMatches(PyExc_TypeError) == 0) return;
  Ref original = take_exception();
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    PyObject* leaf = leaves[i];
    if (TypeTable::instance().find(leaf).sort != LeafSort::kNumpyArray &&
        TypeTable::instance().find(leaf).sort != LeafSort::kNumpyScalar) {
      continue;
    }
    const Ref dtype = Ref::checked(PyObject_GetAttrString(leaf, "dtype"));
    const Ref kind = Ref::checked(PyObject_GetAttrString(dtype.get(), "kind"));
    const char* letter = PyUnicode_AsUTF8(kind.get());
    if (letter == nullptr) throw PythonError{};
    if (std::string("OSUmM").find(*letter) == std::string::npos) continue;
    struct Search {
      std::size_t left;
      std::string path;
    } search{i, "an argument"};
    each_leaf(
        frame.entry->key, names_of(frame),
        [](void* context, const std::string& path, std::ptrdiff_t index) {
          auto* wanted = static_cast<Search*>(context);
          if (index < 0 && wanted->left-- == 0) wanted->path = path;
        },
        &search);
    const Ref name = Ref::checked(PyObject_Str(dtype.get()));
    const char* dtype_name = PyUnicode_AsUTF8(name.get());
    restore_exception(std::move(original));
    WalkError error = WalkError::diagnosed(
        PyExc_TypeError, std::string("found a NumPy array of dtype ") + (dtype_name == nullptr ? "?" : dtype_name) +
                             ", expected numbers or booleans, which jax can trace; convert it, or pass it as a tuple");
    error.raise(search.path);
    return;
  }
  restore_exception(std::move(original));
}

// ---- The trace.

class Tracers final : public LeafSource {
 public:
  Tracers(PyObject* const* leaves, std::size_t count) : leaves_(leaves), count_(count) {}
  Ref leaf(std::size_t index) override {
    if (index >= count_) {
      PyErr_SetString(PyExc_RuntimeError, "partax: a trace got fewer leaves than its arguments have");
      throw PythonError{};
    }
    return Ref::borrow(leaves_[index]);
  }

 private:
  PyObject* const* leaves_;
  std::size_t count_;
};

bool may_forward(PyObject* tracer) { return checked_int(PyObject_IsInstance(tracer, hooks().jax_array.get())) == 1; }

Ref pack_output(PyObject* result, Entry& entry, PyObject* const* inputs, std::size_t num_inputs, PyObject* options) {
  TreeSpec spec;
  LeafBuffer arrays;
  FlattenOptions flatten_options;
  flatten_options.hashed = false;
  flatten_options.rebuildable = true;
  try {
    try {
      Flattener(spec, arrays, flatten_options).tree(result);
    } catch (const PythonError&) {
      throw WalkError::from_user_code("reading");
    }
  } catch (const WalkError& error) {
    error.raise("the result");
    throw PythonError{};
  }

  auto output = std::make_shared<TraceOutput>();
  std::unordered_map<PyObject*, std::size_t> forwardable;
  for (std::size_t i = 0; i < num_inputs; ++i) {
    if (i >= entry.pinned.size() || entry.pinned[i] == 0) forwardable.emplace(inputs[i], i);
  }
  // With explicit out_shardings, Python says which leaves have one; those are not forwarded.
  Ref shardings = Ref::checked(PyObject_CallFunctionObjArgs(hooks().out_shardings.get(), options, result, nullptr));
  Ref kept_shardings;
  if (shardings.get() != Py_None) kept_shardings = Ref::checked(PyList_New(0));

  std::vector<Ref> results;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    PyObject* sharding = kept_shardings ? PyTuple_GetItem(shardings.get(), static_cast<Py_ssize_t>(i)) : Py_None;
    if (sharding == nullptr) throw PythonError{};
    const auto input = forwardable.find(arrays[i]);
    if (sharding == Py_None && input != forwardable.end() && may_forward(arrays[i])) {
      output->source.push_back(~static_cast<std::int32_t>(input->second));
      forwardable.erase(input);  // only the first appearance
      continue;
    }
    output->source.push_back(static_cast<std::int32_t>(results.size()));
    results.push_back(Ref::borrow(arrays[i]));
    if (kept_shardings) checked_int(PyList_Append(kept_shardings.get(), sharding));
  }
  if (kept_shardings) output->shardings = Ref::checked(PyList_AsTuple(kept_shardings.get()));
  const bool bare = spec.nodes.size() == 1 && spec.nodes[0].kind == Kind::kDynamicLeaf && results.size() == 1;
  if (bare && !output->shardings) return results[0];

  output->spec = spec.weakened(entry.key);
  Ref children = Ref::checked(PyTuple_New(static_cast<Py_ssize_t>(results.size())));
  for (std::size_t i = 0; i < results.size(); ++i) {
    PyTuple_SET_ITEM(children.get(), static_cast<Py_ssize_t>(i), results[i].release());
  }
  auto slot = std::make_shared<OutputSlot>();
  slot->output = std::move(output);
  entry.add_output(slot);
  return make_output_node(std::move(slot), std::move(children));
}

// ---- Slots of the wrapper.

PyObject* jit_vectorcall(PyObject* self, PyObject* const* args, std::size_t nargsf, PyObject* keyword_names) noexcept {
  return guarded<PyObject*>(nullptr, [&] {
    const Ref keep = Ref::borrow(self);
    return run(as_jit(self), args, static_cast<std::size_t>(PyVectorcall_NARGS(nargsf)), keyword_names).release();
  });
}

int jit_traverse(PyObject* self, visitproc visit, void* arg) noexcept {
  JitFunction& jit = as_jit(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(jit.function);
  Py_VISIT(jit.self);
  Py_VISIT(jit.options);
  Py_VISIT(jit.dict);
  Py_VISIT(jit.cache);
  return 0;
}

int jit_clear(PyObject* self) noexcept {
  JitFunction& jit = as_jit(self);
  Py_CLEAR(jit.function);
  Py_CLEAR(jit.self);
  Py_CLEAR(jit.dict);
  return 0;  // options and cache stay: it holds the wrapper only through user values, which the GC clears elsewhere
}

void jit_dealloc(PyObject* self) noexcept {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  if (as_jit(self).weakrefs != nullptr) PyObject_ClearWeakRefs(self);
  jit_clear(self);
  Py_CLEAR(as_jit(self).options);
  Py_CLEAR(as_jit(self).cache);
  type->tp_free(self);
  Py_DECREF(type);
}

Ref new_jit(PyObject* function, PyObject* self, PyObject* options) {
  Ref object = Ref::checked(jit_type->tp_alloc(jit_type, 0));
  JitFunction& jit = as_jit(object.get());
  jit.vectorcall = jit_vectorcall;
  jit.function = Py_NewRef(function);
  jit.self = Py_XNewRef(self);
  jit.options = Py_NewRef(options);
  return object;
}

// As a method: the same wrapper with its first argument bound.
PyObject* jit_get(PyObject* self, PyObject* instance, PyObject*) noexcept {
  return guarded<PyObject*>(nullptr, [&]() -> PyObject* {
    const JitFunction& jit = as_jit(self);
    if (instance == nullptr || instance == Py_None || jit.self != nullptr) return Py_NewRef(self);
    Ref bound = new_jit(jit.function, instance, jit.options);
    as_jit(bound.get()).cache = Py_XNewRef(jit.cache);
    as_jit(bound.get()).dict = Py_XNewRef(jit.dict);
    as_jit(bound.get()).callable_is_tree = jit.callable_is_tree;
    return bound.release();
  });
}

// What a wrapper tells of its callable. The attributes are the callable's own unless set on the wrapper.
enum : std::uint8_t { kName, kQualname, kDoc, kModule, kAnnotations, kNumDelegated };
PyObject* delegated[kNumDelegated] = {};

PyObject* jit_getattro(PyObject* self, PyObject* name) noexcept {
  const JitFunction& jit = as_jit(self);
  for (int i = 0; i < kNumDelegated; ++i) {
    if (name != delegated[i] || jit.function == nullptr) continue;
    if (jit.dict != nullptr) {
      PyObject* own = PyDict_GetItemWithError(jit.dict, name);
      if (own != nullptr) return Py_NewRef(own);
      if (PyErr_Occurred() != nullptr) return nullptr;
    }
    PyObject* value = PyObject_GetAttr(jit.function, name);
    if (value != nullptr || i > kQualname || PyErr_ExceptionMatches(PyExc_AttributeError) == 0) return value;
    PyErr_Clear();
    return PyObject_GetAttr(reinterpret_cast<PyObject*>(Py_TYPE(jit.function)), name);
  }
  return PyObject_GenericGetAttr(self, name);
}

PyObject* jit_repr(PyObject* self) noexcept {
  return guarded<PyObject*>(nullptr, [&] {
    const Ref name = Ref::checked(PyObject_GetAttr(self, delegated[kQualname]));
    return PyUnicode_FromFormat("<partax.filter_jit of %S>", name.get());
  });
}

PyObject* released(PyObject*) noexcept {
  PyErr_SetString(PyExc_ReferenceError, "the wrapper is being deleted");
  return nullptr;
}

PyObject* get_wrapped(PyObject* self, void*) noexcept {
  const JitFunction& jit = as_jit(self);
  if (jit.function == nullptr) return released(self);
  return jit.self == nullptr ? Py_NewRef(jit.function) : PyMethod_New(jit.function, jit.self);
}

PyObject* get_self(PyObject* self, void*) noexcept {
  const JitFunction& jit = as_jit(self);
  return Py_NewRef(jit.self == nullptr ? Py_None : jit.self);
}

PyObject* get_function(PyObject* self, void*) noexcept {
  return as_jit(self).function == nullptr ? released(self) : Py_NewRef(as_jit(self).function);
}

PyObject* get_options(PyObject* self, void*) noexcept { return Py_NewRef(as_jit(self).options); }

PyObject* cache_info(PyObject* self, PyObject*) noexcept {
  return guarded<PyObject*>(nullptr, [&] {
    ensure_cache(as_jit(self));
    const CallCache& cache = cache_of(as_jit(self));
    std::size_t traces = 0;
    cache.table.each([&](const Entry& entry) { traces += entry.traces; });
    return Py_BuildValue("nnnnn", static_cast<Py_ssize_t>(cache.table.size()), static_cast<Py_ssize_t>(traces),
                         static_cast<Py_ssize_t>(cache.hits), static_cast<Py_ssize_t>(cache.misses),
                         static_cast<Py_ssize_t>(cache.table.max_size()));
  });
}

PyObject* clear_cache(PyObject* self, PyObject*) noexcept {
  return guarded<PyObject*>(nullptr, [&]() -> PyObject* {
    ensure_cache(as_jit(self));
    CallCache& cache = cache_of(as_jit(self));
    cache.table.clear();
    cache.hits = cache.misses = 0;
    Py_RETURN_NONE;
  });
}

PyMethodDef jit_methods[] = {
    {"_cache_info", cache_info, METH_NOARGS, "(static keys, traces, hits, misses, size limit)"},
    {"clear_cache", clear_cache, METH_NOARGS,
     "clear_cache($self, /)\n--\n\nDrops every static key, trace and executable of the wrapped callable.\n\n"
     "Wrappers of the same callable with the same options share them, so theirs go too."},
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, nullptr},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef jit_getset[] = {
    {"__wrapped__", get_wrapped, nullptr, "The wrapped callable, bound if the wrapper is.", nullptr},
    {"__self__", get_self, nullptr, "The bound instance, or None.", nullptr},
    {"_function", get_function, nullptr, "The wrapped callable, unbound.", nullptr},
    {"_options", get_options, nullptr, "The options of filter_jit.", nullptr},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyMemberDef jit_members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(JitFunction, vectorcall), READONLY, nullptr},
                             {"__dictoffset__", T_PYSSIZET, offsetof(JitFunction, dict), READONLY, nullptr},
                             {"__weaklistoffset__", T_PYSSIZET, offsetof(JitFunction, weakrefs), READONLY, nullptr},
                             {nullptr, 0, 0, 0, nullptr}};

constexpr char kJitDoc[] = "What `filter_jit` returns: called as the wrapped callable is, and a pytree of it.";

PyType_Slot jit_slots[] = {{Py_tp_doc, const_cast<char*>(kJitDoc)},
                           {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                           {Py_tp_traverse, reinterpret_cast<void*>(jit_traverse)},
                           {Py_tp_clear, reinterpret_cast<void*>(jit_clear)},
                           {Py_tp_dealloc, reinterpret_cast<void*>(jit_dealloc)},
                           {Py_tp_descr_get, reinterpret_cast<void*>(jit_get)},
                           {Py_tp_repr, reinterpret_cast<void*>(jit_repr)},
                           {Py_tp_getattro, reinterpret_cast<void*>(jit_getattro)},
                           {Py_tp_methods, jit_methods},
                           {Py_tp_getset, jit_getset},
                           {Py_tp_members, jit_members},
                           {0, nullptr}};

PyType_Spec jit_spec = {
    "partax._core.JitFunction", sizeof(JitFunction), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    jit_slots};

// ---- Slots of the shared cache.

int cache_traverse(PyObject* self, visitproc visit, void* arg) noexcept {
  const CallCache* cache = reinterpret_cast<CallCacheObject*>(self)->cache;
  Py_VISIT(Py_TYPE(self));
  if (cache == nullptr) return 0;
  Py_VISIT(cache->options.get());
  return cache->table.traverse(visit, arg);
}

int cache_clear(PyObject* self) noexcept {
  CallCache* cache = reinterpret_cast<CallCacheObject*>(self)->cache;
  if (cache == nullptr) return 0;
  cache->table.clear();
  return 0;
}

void cache_dealloc(PyObject* self) noexcept {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  delete std::exchange(reinterpret_cast<CallCacheObject*>(self)->cache, nullptr);
  type->tp_free(self);
  Py_DECREF(type);
}

PyType_Slot cache_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(cache_traverse)},
                             {Py_tp_clear, reinterpret_cast<void*>(cache_clear)},
                             {Py_tp_dealloc, reinterpret_cast<void*>(cache_dealloc)},
                             {0, nullptr}};

PyType_Spec cache_spec = {"partax._core.CallCache", sizeof(CallCacheObject), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, cache_slots};

// (function name, names, optional, positional-only, positional, name of *args, **kwargs?, defaults) from Python.
Parameters read_parameters(PyObject* description) {
  Parameters parameters;
  const char* function = nullptr;
  PyObject *names = nullptr, *optional = nullptr;
  Py_ssize_t positional_only = 0, positional = 0;
  const char* var_positional = nullptr;
  int var_keyword = 0, live = 0;
  if (!PyArg_ParseTuple(description, "sO!O!nnspi", &function, &PyTuple_Type, &names, &PyTuple_Type, &optional,
                        &positional_only, &positional, &var_positional, &var_keyword, &live)) {
    throw PythonError{};
  }
  parameters.function = function;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); ++i) {
    PyObject* name = Py_NewRef(PyTuple_GET_ITEM(names, i));
    PyUnicode_InternInPlace(&name);
    parameters.names.push_back(Ref::steal(name));
    parameters.optional.push_back(PyTuple_GET_ITEM(optional, i) == Py_True);
  }
  parameters.num_positional_only = static_cast<std::size_t>(positional_only);
  parameters.num_positional = static_cast<std::size_t>(positional);
  parameters.var_positional = *var_positional != '\0';
  parameters.var_positional_name = var_positional;
  parameters.var_keyword = var_keyword != 0;
  parameters.defaults = static_cast<Parameters::Defaults>(live);
  return parameters;
}

Ref make_cache(PyObject* function, PyObject* options) {
  const Ref description = Ref::checked(PyObject_CallOneArg(hooks().call_parameters.get(), function));
  Parameters parameters = read_parameters(description.get());
  const Ref size = Ref::checked(PyObject_GetAttrString(options, "cache_size"));
  const std::size_t max_size = PyLong_AsSize_t(size.get());
  if (PyErr_Occurred() != nullptr) throw PythonError{};
  auto cache = std::make_unique<CallCache>(std::move(parameters), Ref::borrow(options), max_size);
  Ref object = Ref::checked(cache_type->tp_alloc(cache_type, 0));
  reinterpret_cast<CallCacheObject*>(object.get())->cache = cache.release();
  return object;
}

}  // namespace

CallFrame::CallFrame(JitFunction& jit_, CallCache& cache_, const BoundCall& call_, bool abstract_) noexcept
    : jit(jit_), cache(cache_), call(call_), outer(innermost), abstract(abstract_) {
  innermost = this;
}

CallFrame::~CallFrame() {
  innermost = outer;
  if (!on_exit) return;
  // A result or an exception is on its way to the caller: the callback must not disturb it.
  const bool failed = PyErr_Occurred() != nullptr;
  Ref exception = failed ? take_exception() : Ref();
  const Ref done = Ref::steal(PyObject_CallNoArgs(on_exit.get()));
  if (!done) PyErr_WriteUnraisable(on_exit.get());
  if (failed) restore_exception(std::move(exception));
}

namespace {

// As a pytree: the children are the callable and the bound instance, the aux data the options.
PyObject* flatten_jit(PyObject*, PyObject* object) noexcept {
  if (Py_TYPE(object) != jit_type || as_jit(object).function == nullptr) {
    PyErr_SetString(PyExc_TypeError, "expected a filter_jit wrapper");
    return nullptr;
  }
  const JitFunction& jit = as_jit(object);
  return jit.self == nullptr ? Py_BuildValue("((O)O)", jit.function, jit.options)
                             : Py_BuildValue("((OO)O)", jit.function, jit.self, jit.options);
}

PyObject* unflatten_jit(PyObject*, PyObject* const* args, Py_ssize_t count) noexcept {
  return guarded<PyObject*>(nullptr, [&]() -> PyObject* {
    Ref children = count == 2 ? Ref::checked(PySequence_Tuple(args[1])) : Ref();
    const Py_ssize_t size = children ? PyTuple_GET_SIZE(children.get()) : 0;
    if (size != 1 && size != 2) {
      PyErr_SetString(PyExc_TypeError, "expected options and one or two children");
      return nullptr;
    }
    PyObject* self = size == 2 ? PyTuple_GET_ITEM(children.get(), 1) : nullptr;
    return new_jit(PyTuple_GET_ITEM(children.get(), 0), self, args[0]).release();
  });
}

PyMethodDef flatten_method = {"flatten_jit", flatten_jit, METH_O, nullptr};
PyMethodDef unflatten_method = {"unflatten_jit",
                                reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(unflatten_jit)),
                                METH_FASTCALL, nullptr};

}  // namespace

Ref register_jit_function_types() {
  const char* names[] = {"__name__", "__qualname__", "__doc__", "__module__", "__annotations__"};
  for (int i = 0; i < kNumDelegated; ++i) delegated[i] = Ref::checked(PyUnicode_InternFromString(names[i])).release();
  jit_type = reinterpret_cast<PyTypeObject*>(Ref::checked(PyType_FromSpec(&jit_spec)).release());
  cache_type = reinterpret_cast<PyTypeObject*>(Ref::checked(PyType_FromSpec(&cache_spec)).release());
  const Ref flatten = Ref::checked(PyCFunction_New(&flatten_method, nullptr));
  const Ref unflatten = Ref::checked(PyCFunction_New(&unflatten_method, nullptr));
  return Ref::checked(PyTuple_Pack(3, jit_type, flatten.get(), unflatten.get()));
}

bool is_jit_function(PyObject* object) noexcept { return Py_TYPE(object) == jit_type; }

void clear_shared_caches() noexcept { shared_caches().clear(); }

namespace {

// Finds the cache of an equal callable with equal options, or makes one.
void ensure_cache(JitFunction& jit) {
  if (jit.function == nullptr) {
    released(nullptr);
    throw PythonError{};
  }
  if (jit.cache != nullptr) return;
  const Ref key = Ref::checked(PyObject_GetAttrString(jit.options, "key"));
  TreeSpec spec;
  LeafBuffer leaves;
  PyObject* const values[] = {jit.function, key.get()};
  const auto names = [] { return Names{"fun", "options"}; };
  flatten_call(spec, leaves, FlattenOptions(), values, 2, names);
  try {
    EntryPtr entry = shared_caches().find(spec, CallShape());
    Ref cache = entry ? entry->value : Ref();
    if (!cache) {
      cache = make_cache(jit.function, jit.options);
      if (!entry) entry = shared_caches().insert(spec, CallShape());
      entry->value = cache;
    }
    jit.callable_is_tree = spec.nodes[1].kind != Kind::kStaticLeaf;
    if (jit.cache == nullptr) jit.cache = cache.release();
  } catch (const WalkError& error) {
    raise_at_static(error, spec, names());
  }
}

}  // namespace

Ref make_jit_function(PyObject* function, PyObject* options) {
  // A bound method is its function with the instance as first argument.
  const bool is_method = PyMethod_Check(function);
  Ref jit = new_jit(is_method ? PyMethod_GET_FUNCTION(function) : function,
                    is_method ? PyMethod_GET_SELF(function) : nullptr, options);
  ensure_cache(as_jit(jit.get()));
  return jit;
}

Ref run_trace(PyObject* const* leaves, std::size_t count) {
  CallFrame* frame = innermost;
  if (frame == nullptr || frame->entry == nullptr) {
    PyErr_SetString(PyExc_RuntimeError, "partax: a target was called outside of its wrapper");
    throw PythonError{};
  }
  // The trace sees the values of this very call; the key must still describe them.
  TreeSpec spec;
  LeafBuffer arrays;
  FlattenOptions options;
  options.abstract = frame->abstract;
  options.rebuildable = true;
  const auto names = [&] { return names_of(*frame); };
  flatten_call(spec, arrays, options, frame->call.values(), frame->call.size(), names);
  bool unchanged = false;
  try {
    unchanged = frame->entry->key.equals(spec);
  } catch (const WalkError& error) {
    raise_at_static(error, spec, names());
  }
  if (!unchanged) {
    PyErr_SetString(PyExc_RuntimeError,
                    "an argument changed while its call was being traced, expected arguments to stay as they are for "
                    "the length of a call; do not mutate them from `__eq__`, `__hash__` or other threads");
    throw PythonError{};
  }
  frame->traced = true;
  Tracers tracers(leaves, count);
  const std::vector<Ref> values = rebuild_call(spec, tracers);
  const bool has_callable = frame->call.has_callable();
  PyObject* callable = has_callable ? values[0].get() : frame->jit.function;
  const Ref result = call_with(frame->cache.parameters, frame->call.shape(), callable, values, has_callable ? 1 : 0);
  Ref packed = pack_output(result.get(), *frame->entry, leaves, count, frame->cache.options.get());
  ++frame->entry->traces;
  return packed;
}

bool on_call_exit(PyObject* callback) {
  if (innermost == nullptr || innermost->on_exit) return false;
  innermost->on_exit = Ref::borrow(callback);
  return true;
}

PreparedCall::PreparedCall(PyObject* jit, bool abstract)
    : jit_(Ref::borrow(jit)), leaves_(std::make_unique<LeafBuffer>()), abstract_(abstract) {}

void PreparedCall::bind(PyObject* args, PyObject* kwargs) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) arguments_.push_back(Ref::borrow(PyTuple_GET_ITEM(args, i)));
  const std::size_t num_args = arguments_.size();
  if (PyDict_GET_SIZE(kwargs) > 0) {
    keyword_names_ = Ref::checked(PySequence_Tuple(kwargs));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keyword_names_.get()); ++i) {
      arguments_.push_back(Ref::borrow(PyDict_GetItem(kwargs, PyTuple_GET_ITEM(keyword_names_.get(), i))));
    }
  }
  for (const Ref& argument : arguments_) borrowed_.push_back(argument.get());
  JitFunction& function = as_jit(jit_.get());
  ensure_cache(function);
  CallCache& cache = cache_of(function);
  call_ = std::make_unique<BoundCall>(cache.parameters, function.function,
                                      function.callable_is_tree ? function.function : nullptr, function.self,
                                      borrowed_.data(), num_args, keyword_names_.get());
  names_ = value_names(cache.parameters, call_->shape(), call_->has_callable());
}

PreparedCall::PreparedCall(PyObject* jit, PyObject* args, PyObject* kwargs, bool abstract)
    : PreparedCall(jit, abstract) {
  bind(args, kwargs);
  JitFunction& function = as_jit(jit_.get());
  CallFrame frame(function, cache_of(function), *call_, abstract);
  bool is_new = false;
  entry_ = find_entry(frame, *leaves_, is_new);
  leaf_tuple_ = leaves_->tuple();
}

std::unique_ptr<PreparedCall> PreparedCall::rebind(PyObject* args, PyObject* kwargs) const {
  std::unique_ptr<PreparedCall> other(new PreparedCall(jit_.get(), false));
  other->bind(args, kwargs);
  other->entry_ = entry_;
  if (!(entry_->shape == other->call_->shape()) ||
      !match_call(entry_->key, other->call_->values(), other->call_->size(), *other->leaves_, false)) {
    return nullptr;
  }
  other->leaf_tuple_ = other->leaves_->tuple();
  return other;
}

Ref PreparedCall::run(PyObject* callable) const {
  JitFunction& function = as_jit(jit_.get());
  CallCache& cache = cache_of(function);
  CallFrame frame(function, cache, *call_, abstract_);
  frame.entry = entry_.get();
  Ref returned = Ref::steal(PyObject_CallFunctionObjArgs(callable, target(), leaf_tuple_.get(), nullptr));
  if (!returned) {
    if (entry_->traces == 0) cache.table.erase(*entry_);
    explain_failure(frame, *leaves_);
    throw PythonError{};
  }
  return returned;
}

Ref PreparedCall::result(PyObject* returned) const { return user_result(returned, *leaves_); }

namespace {

Ref items_of(const TreeSpec& spec, const Names& names) {
  struct Collector {
    const TreeSpec& spec;
    Ref list;
  } collector{spec, Ref::checked(PyList_New(0))};
  each_static(
      spec, names,
      [](void* context, const std::string& path, std::ptrdiff_t index) {
        auto* to = static_cast<Collector*>(context);
        const Ref value = to->spec.statics[static_cast<std::size_t>(index)].value();
        const Ref pair = Ref::checked(PyTuple_Pack(2, unicode(path).get(), value ? value.get() : Py_None));
        checked_int(PyList_Append(to->list.get(), pair.get()));
      },
      &collector);
  return collector.list;
}

}  // namespace

Ref PreparedCall::static_items() const {
  TreeSpec spec;
  LeafBuffer leaves;
  FlattenOptions options;
  options.abstract = abstract_;
  options.keyed = true;
  flatten_call(spec, leaves, options, call_->values(), call_->size(), [&] { return names_; });
  return items_of(spec, names_);
}

Ref PreparedCall::static_items_of(PyObject* args, PyObject* kwargs) const {
  PreparedCall other(jit_.get(), false);
  other.bind(args, kwargs);
  return other.static_items();
}

void PreparedCall::detach() noexcept {
  call_.reset();
  leaves_.reset();
  leaf_tuple_.reset();
  borrowed_.clear();
  std::vector<Ref> dropped;
  dropped.swap(arguments_);
}

}  // namespace partax
