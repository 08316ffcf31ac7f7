#include "call.h"

#include <algorithm>
#include <cstring>
#include <iterator>

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

using Pins = std::vector<std::uint8_t>;

// (object, pinned leaves) from Python.
std::pair<Ref, Pins> with_pins(const Ref& made) {
  PyObject *object = nullptr, *pinned = nullptr;
  if (!PyArg_ParseTuple(made.get(), "OO!", &object, &PyBytes_Type, &pinned)) throw PythonError{};
  const char* bytes = PyBytes_AS_STRING(pinned);
  return {Ref::borrow(object), Pins(bytes, bytes + PyBytes_GET_SIZE(pinned))};
}

// The leaves that some trace of the entry forwards.
Pins forwarded_leaves(const Entry& entry, std::size_t count) {
  Pins forwarded(count, 0);
  for (const std::weak_ptr<OutputSlot>& output : entry.outputs) {
    const std::shared_ptr<OutputSlot> slot = output.lock();
    if (!slot || !slot->output) continue;
    for (const std::int32_t source : slot->output->source) {
      if (source < 0) forwarded.at(~static_cast<std::size_t>(source)) = 1;
    }
  }
  return forwarded;
}

bool any_in_both(const Pins& left, const Pins& right) {
  for (std::size_t i = 0; i < left.size() && i < right.size(); ++i) {
    if (left[i] != 0 && right[i] != 0) return true;
  }
  return false;
}

// What the target is made of. The first thread's counts: jax traces a function once for all threads, and each function
// anew.
Ref draft_of(const CallFrame& frame, Entry& entry, PyObject* names, PyObject* leaves) {
  if (entry.draft) return entry.draft;
  const Ref values = tuple_of(frame.call.values(), frame.call.size());
  auto [draft, pinned] = with_pins(Ref::checked(PyObject_CallFunctionObjArgs(
      hooks().draft_target.get(), frame.cache.options.get(), frame.function, names, values.get(), leaves,
      frame.call.has_callable() ? Py_True : Py_False, leaf_paths(frame, entry.key).get(), nullptr)));
  if (!entry.draft) {
    entry.draft = draft;
    entry.pinned = std::move(pinned);
  }
  return entry.draft;
}

// Python makes the jax.jit target, and may trace it to know which arguments it must not donate. Tells whether it did,
// or another thread was first.
bool build_target(CallFrame& frame, Entry& entry, const LeafBuffer& leaves) {
  const Ref owners = leaf_owners(entry.key);
  const Ref tuple = leaves.tuple();
  const Ref names = string_tuple(names_of(frame));
  const Ref draft = draft_of(frame, entry, names.get(), tuple.get());
  while (!entry.value) {
    const Pins before = forwarded_leaves(entry, leaves.size());
    const Ref kept = Ref::checked(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(before.data()),
                                                            static_cast<Py_ssize_t>(before.size())));
    auto [target, donated] = with_pins(Ref::checked(PyObject_CallFunctionObjArgs(
        hooks().build_target.get(), frame.cache.options.get(), draft.get(), names.get(), owners.get(), tuple.get(),
        frame.call.has_callable() ? Py_True : Py_False, kept.get(), nullptr)));
    // From here on no Python runs: a trace either is in `forwarded`, or sees what is pinned.
    if (entry.value) break;
    if (any_in_both(donated, forwarded_leaves(entry, leaves.size()))) continue;
    for (std::size_t i = 0; i < donated.size(); ++i) entry.pinned[i] = entry.pinned[i] != 0 || donated[i] != 0 ? 1 : 0;
    if (any_in_both(donated, donated)) entry.donated = std::move(donated);
    entry.value = std::move(target);
    const Ref done = std::move(entry.draft);
    return true;
  }
  return false;
}

// The callables of a call for which its key has equal ones.
void add_twins(const TreeSpec& key, const TreeSpec& spec, LeafBuffer& leaves) {
  for (std::size_t i = 0; i < key.statics.size(); ++i) {
    PyObject* callable = spec.statics[i].identity();
    if (key.statics[i].is_callable() && !key.statics[i].is_same_callable(callable)) leaves.add_twin(i, callable);
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
  add_twins(entry->key, spec, leaves);
  if (entry->value) return entry;
  frame.entry = entry.get();
  try {
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
    const char* path = PyUnicode_AsUTF8(PyList_GetItem(paths.get(), static_cast<Py_ssize_t>(i)));
    if (path == nullptr) throw PythonError{};
    note += std::string(" `") + path + "`";
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
  const std::string path = exact_text(PyList_GetItem(leaf_paths(frame, frame.entry->key).get(), index));
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

bool holds_callables(const TreeSpec& key) {
  return std::any_of(key.statics.begin(), key.statics.end(), [](const auto& value) { return value.holds_callables(); });
}

Change settle(const TreeSpec& known, const TreeSpec& values, bool others_may) {
  std::vector<Ref> changed, noting;
  if (known.statics.size() != values.statics.size()) return Change::kNone;
  for (std::size_t i = 0; i < known.statics.size(); ++i) {
    if (!known.statics[i].holds_callables() || values.statics[i].absent()) continue;
    StaticValue::Changed found = known.statics[i].changed_callables(values.statics[i].value().get());
    std::move(found.changed.begin(), found.changed.end(), std::back_inserter(changed));
    std::move(found.noting.begin(), found.noting.end(), std::back_inserter(noting));
  }
  const auto by_others = [](const Ref& callable) { return changed_by_others(callable.get()); };
  if (others_may && std::any_of(changed.begin(), changed.end(), by_others)) return Change::kOthers;
  for (const Ref& callable : changed) mark_unsteady(callable.get());
  for (const Ref& callable : noting) mark_noting(callable.get());
  return changed.empty() && noting.empty() ? Change::kNone : Change::kOwn;
}

Change settle_key(CallFrame& frame, bool others_may) {
  Entry& entry = *frame.entry;
  if (!holds_callables(entry.key)) return Change::kNone;
  const auto flattened = [&](bool hashed) {
    TreeSpec spec;
    LeafBuffer leaves;
    FlattenOptions options = flatten_options(frame.cache, frame.call, frame.abstract);
    options.hashed = hashed;
    flatten_call(spec, leaves, options, frame.call.values(), frame.call.size(), [&] { return names_of(frame); });
    return spec;
  };
  const Change change = settle(entry.key, flattened(false), others_may);
  if (change == Change::kOwn) frame.cache.table.rekey(entry, flattened(true));
  return change;
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
