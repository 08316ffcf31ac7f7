#include "call.h"

#include <algorithm>
#include <cstring>

#include "match.h"

namespace partax {
namespace {

thread_local CallFrame* innermost_frame = nullptr;

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

// The paths of the call's array leaves.
Ref leaf_paths(const CallFrame& frame, const TreeSpec& key) {
  const Ref paths = Ref::checked(PyList_New(0));
  const auto append = [](void* list, const std::string& path, std::ptrdiff_t index) {
    if (index < 0) checked_int(PyList_Append(static_cast<PyObject*>(list), unicode(path).get()));
  };
  const Names names = names_of(frame);
  bool registered = false;
  for (const Node& node : key.nodes) registered = registered || node.kind == Kind::kRegistered;
  if (!registered) {
    each_leaf(key, names, append, paths.get());
    return paths;
  }
  // A key has no names for the children of registered nodes.
  TreeSpec keyed;
  LeafBuffer leaves;
  FlattenOptions options;
  options.abstract = frame.abstract;
  options.hashed = false;
  options.keyed = true;
  flatten_call(keyed, leaves, options, frame.call.values(), frame.call.size(), [&] { return names_of(frame); });
  each_leaf(keyed, names, append, paths.get());
  return paths;
}

// A node may have fewer children when it is flattened again.
std::string path_at(const Ref& paths, Py_ssize_t index) {
  if (index >= PyList_GET_SIZE(paths.get())) return "an argument";
  return exact_text(PyList_GET_ITEM(paths.get(), index));
}

// For each leaf 1 or 0.
using Flags = std::vector<std::uint8_t>;

// (object, flags) from Python.
std::pair<Ref, Flags> with_flags(const Ref& made) {
  PyObject *object = nullptr, *flags = nullptr;
  if (!PyArg_ParseTuple(made.get(), "OO!", &object, &PyBytes_Type, &flags)) throw PythonError{};
  const char* bytes = PyBytes_AS_STRING(flags);
  return {Ref::borrow(object), Flags(bytes, bytes + PyBytes_GET_SIZE(flags))};
}

// The leaves that some trace of the entry forwards.
Flags forwarded_leaves(const Entry& entry, std::size_t count) {
  Flags forwarded(count, 0);
  for (const std::weak_ptr<OutputSlot>& output : entry.outputs) {
    const std::shared_ptr<OutputSlot> slot = output.lock();
    if (!slot || !slot->output) continue;
    for (const std::int32_t source : slot->output->source) {
      if (source < 0) forwarded.at(~static_cast<std::size_t>(source)) = 1;
    }
  }
  return forwarded;
}

bool any_in_both(const Flags& left, const Flags& right) {
  for (std::size_t i = 0; i < left.size() && i < right.size(); ++i) {
    if (left[i] != 0 && right[i] != 0) return true;
  }
  return false;
}

// The function that jax traces, with the options of its jax.jit. The first thread's counts: jax traces a function once
// for all threads, and each function anew.
Ref traced_function(const CallFrame& frame, Entry& entry, PyObject* names, PyObject* leaves) {
  if (entry.function) return entry.function;
  const Ref values = tuple_of(frame.call.values(), frame.call.size());
  auto [function, sharded] = with_flags(Ref::checked(PyObject_CallFunctionObjArgs(
      hooks().traced_function.get(), frame.cache.options.get(), frame.function, names, values.get(), leaves,
      frame.call.has_callable() ? Py_True : Py_False, leaf_paths(frame, entry.key).get(), nullptr)));
  if (!entry.function) {
    entry.function = function;
    entry.through_xla = std::move(sharded);
  }
  return entry.function;
}

// Python makes the jax.jit target, and may trace it to know which arguments it must not donate. Tells whether it did,
// or another thread was first.
bool build_target(CallFrame& frame, Entry& entry, const LeafBuffer& leaves) {
  const Ref owners = leaf_owners(entry.key);
  const Ref tuple = leaves.tuple();
  const Ref names = string_tuple(names_of(frame));
  const Ref function = traced_function(frame, entry, names.get(), tuple.get());
  while (!entry.value) {
    const Flags before = forwarded_leaves(entry, leaves.size());
    const Ref kept = Ref::checked(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(before.data()),
                                                            static_cast<Py_ssize_t>(before.size())));
    auto [target, donated] = with_flags(Ref::checked(PyObject_CallFunctionObjArgs(
        hooks().build_target.get(), frame.cache.options.get(), function.get(), names.get(), owners.get(), tuple.get(),
        frame.call.has_callable() ? Py_True : Py_False, kept.get(), nullptr)));
    // From here on no Python runs: a trace either is in `forwarded`, or sees what goes through XLA.
    if (entry.value) break;
    if (any_in_both(donated, forwarded_leaves(entry, leaves.size()))) continue;
    for (std::size_t i = 0; i < donated.size(); ++i) entry.through_xla[i] |= donated[i];
    if (any_in_both(donated, donated)) entry.donated = std::move(donated);
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

// Adds to jax's error about a leaked tracer which arguments are tracers.
void note_tracers(const CallFrame& frame, const LeafBuffer& leaves, PyObject* error) {
  const Ref paths = leaf_paths(frame, frame.entry->key);
  std::string note = "partax: the call had a tracer at";
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (TypeTable::instance().find(leaves[i]).sort != LeafSort::kTracer) continue;
    note += " `" + path_at(paths, static_cast<Py_ssize_t>(i)) + "`";
  }
  const Ref added = Ref::checked(call_method(error, "add_note", unicode(note).get()));
}

// jax says which sharding does not fit, but not always of which argument.
void name_misplaced_leaf(const CallFrame& frame, const LeafBuffer& leaves) {
  Ref original = take_exception();
  const Ref found = Ref::checked(PyObject_CallFunctionObjArgs(
      hooks().misplaced_leaf.get(), frame.cache.options.get(), string_tuple(names_of(frame)).get(),
      tuple_of(frame.call.values(), frame.call.size()).get(), leaves.tuple().get(),
      frame.call.has_callable() ? Py_True : Py_False, original.get(), nullptr));
  if (found.get() == Py_None) return restore_exception(std::move(original));
  Py_ssize_t index = 0;
  const char* text = nullptr;
  if (PyArg_ParseTuple(found.get(), "ns", &index, &text) == 0) throw PythonError{};
  const std::string path = path_at(leaf_paths(frame, frame.entry->key), index);
  WalkError::diagnosed(PyExc_ValueError, text).raise(path);
  Ref error = take_exception();
  PyException_SetCause(error.get(), original.release());
  restore_exception(std::move(error));
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

void raise_at_static(const WalkError& error, const TreeSpec& spec, const Names& names) {
  error.raise(static_path(spec, names, error.origin()));
  throw PythonError{};
}

FlattenOptions flatten_options(const CallCache& cache, const BoundCall& call, bool abstract) {
  FlattenOptions options;
  options.abstract = abstract;
  options.callables = cache.callables;
  if (cache.rule.any()) {
    options.rule = &cache.rule;
    options.rule_values = cache.rule.values(option_names(cache.parameters, call.shape(), call.has_callable()));
  }
  return options;
}

Names names_of(const CallFrame& frame) {
  return value_names(frame.cache.parameters, frame.call.shape(), frame.call.has_callable());
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

void explain_failure(const CallFrame& frame, const LeafBuffer& leaves) {
  if (!frame.in_body && PyErr_ExceptionMatches(PyExc_ValueError) != 0) name_misplaced_leaf(frame, leaves);
  if (frame.traced || PyErr_ExceptionMatches(PyExc_TypeError) == 0) return;
  Ref original = take_exception();
  if (std::strcmp(Py_TYPE(original.get())->tp_name, "UnexpectedTracerError") == 0) {
    note_tracers(frame, leaves, original.get());
    restore_exception(std::move(original));
    return;
  }
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    PyObject* leaf = leaves[i];
    if (TypeTable::instance().find(leaf).sort != LeafSort::kNumpyArray &&
        TypeTable::instance().find(leaf).sort != LeafSort::kNumpyScalar) {
      continue;
    }
    const Ref dtype = attribute(leaf, "dtype");
    const Ref kind = attribute(dtype.get(), "kind");
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

}  // namespace partax
