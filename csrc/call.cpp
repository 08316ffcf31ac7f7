#include "call.h"

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

// Python makes the jax.jit target, and may trace it to know which arguments it must not donate.
void build_target(CallFrame& frame, Entry& entry, const LeafBuffer& leaves) {
  const Ref owners = leaf_owners(entry.key);
  const Ref tuple = leaves.tuple();
  const Ref values = Ref::checked(PyTuple_New(static_cast<Py_ssize_t>(frame.call.size())));
  for (std::size_t i = 0; i < frame.call.size(); ++i) {
    PyTuple_SET_ITEM(values.get(), static_cast<Py_ssize_t>(i), Py_NewRef(frame.call.values()[i]));
  }
  const Ref built = Ref::checked(PyObject_CallFunctionObjArgs(
      hooks().build_target.get(), frame.cache.options.get(), frame.function, string_tuple(names_of(frame)).get(),
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

Names names_of(const CallFrame& frame) {
  return value_names(frame.cache.parameters, frame.call.shape(), frame.call.has_callable());
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

}  // namespace partax
