#include "call/call_cache.h"

#include <algorithm>

#include "base/boxed.h"
#include "base/python_hooks.h"
#include "tree/spec_data.h"

namespace partax {
namespace {

// From partax._jit.options.CallParameters.
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

Callables callables_of(PyObject* options) {
  const Ref name = attribute(options, "callables");
  return PyUnicode_CompareWithASCIIString(name.get(), "identity") == 0 ? Callables::kByIdentity
                                                                       : Callables::kByStructure;
}

}  // namespace

CallCache::CallCache(PyObject* function, PyObject* given)
    : parameters(read_parameters(python::call_parameters(function))),
      options(Ref::borrow(given)),
      table(size_of_number(attribute(given, "cache_size").get()),
            [](const EntryPtr& entry, bool) { return survives_owner(*entry); }),
      callables(callables_of(given)),
      rule(attribute(given, "trace").get()),
      graph(Ref::borrow(null_if_none(attribute(given, "graph").get()))) {}

CallCache& cache_in(PyObject* object) noexcept { return *reinterpret_cast<Boxed<CallCache>*>(object)->value; }

int forget_entries(PyObject* cache) noexcept {
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

// By their static part. It keeps no callable alive. A cache goes with its callables; but that of one which can be made
// anew, as a lambda in a loop, waits for its like: of the caches whose callables are all gone the latest are kept, if
// they hold no array and no object of the user's.
class SharedCaches {
 public:
  static SharedCaches& instance() {
    static auto* const caches = new SharedCaches();  // never destroyed: the interpreter may be gone by then
    return *caches;
  }

  EntryTable table{1 << 14,
                   [](const EntryPtr& entry, bool unowned) { return !unowned || instance().survives_owner(entry); }};

  // The entry is in use as long as `callable` lives.
  void attach(const EntryPtr& entry, PyObject* callable) {
    table.attach(entry, callable);
    stop_waiting([&](const EntryPtr& other) { return !other || other == entry; });
  }
  bool is_waiting(const EntryPtr& entry) const {
    return std::any_of(waiting_.begin(), waiting_.end(), [&](const auto& other) { return other.lock() == entry; });
  }

 private:
  static constexpr std::size_t kMaxWaiting = 256;

  SharedCaches() { waiting_.reserve(kMaxWaiting + 1); }
  // Has an entry wait whose callables are all gone, if it may. Runs as the callback of a weak reference: needs no
  // memory.
  bool survives_owner(const EntryPtr& entry) noexcept {
    if (!entry->key.survives_owner()) return false;
    const Ref cache = entry->value;
    if (cache) cache_in(cache.get()).table.erase_if([](const Entry& known) { return !partax::survives_owner(known); });
    if (!entry->owners.empty())
      return true;  // what was dropped has run Python, and a thread has brought a new callable
    stop_waiting([](const EntryPtr& other) { return !other; });
    waiting_.push_back(entry);
    if (waiting_.size() <= kMaxWaiting) return true;
    const EntryPtr dropped = waiting_.front().lock();
    waiting_.erase(waiting_.begin());
    if (dropped) table.erase(*dropped);
    return true;
  }
  template <typename Condition>
  void stop_waiting(Condition&& condition) {
    const auto is_such = [&](const std::weak_ptr<Entry>& other) { return condition(other.lock()); };
    waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(), is_such), waiting_.end());
  }

  std::vector<std::weak_ptr<Entry>> waiting_;  // oldest first; never grows, since a callable's death cannot fail
};

// The roots of the paths of what a cache is found by.
Ref root_names() { return Ref::checked(Py_BuildValue("(ss)", "fun", "options")); }

}  // namespace

Ref living_caches(PyObject* callable) {
  std::vector<Ref> caches;
  const SharedCaches& shared = SharedCaches::instance();
  for (const EntryPtr& entry : shared.table.all()) {
    const bool is_such = entry->value && (callable == Py_None || entry->owners.count(callable) != 0);
    if (is_such && !shared.is_waiting(entry)) caches.push_back(entry->value);
  }
  return list_of(std::move(caches));
}

TreeSpec root_spec(PyObject* function, PyObject* options, Callables callables) {
  const Ref key = attribute(options, "key");
  TreeSpec spec;
  LeafBuffer leaves;
  FlattenOptions flatten_options;
  flatten_options.callables = callables;
  PyObject* const values[] = {function, key.get()};
  flatten_values(spec, leaves, flatten_options, values, 2, root_names);
  return spec;
}

// ---- Which of them a wrapper uses.

namespace {

// Whether the callable is as it was when the cache was found.
bool is_as_seen(const JitFunction& jit) {
  const SeenCallable seen = jit.seen;
  if (seen == nullptr || is_self_changing(jit.function)) return true;
  return jit.num_changes == cache_in(jit.cache).num_changes && seen->is_still(jit.function);
}

// Both at once, and only then lets go of what was there, which may run Python.
void set_cache(JitFunction& jit, Ref cache, SeenCallable seen) noexcept {
  jit.num_changes = cache_in(cache.get()).num_changes;
  const Ref before = Ref::steal(std::exchange(jit.cache, cache.release()));
  jit.seen.swap(seen);
}

// What a wrapper remembers of its callable, or null of one that is matched with the arguments.
SeenCallable see_callable(const JitFunction& jit) {
  TypeTable::instance().epoch();  // classes may have been registered since
  if (TypeTable::instance().find(jit.function).kind != Kind::kStaticLeaf) return nullptr;
  const StaticValue value = StaticValue::loose(Ref::borrow(jit.function));
  return std::make_shared<const StaticValue>(value.sealed(nullptr, callables_of(jit.options), false));
}

// Where a callable holds other objects than before, equal ones, an argument may no longer be one of them; its other
// wrappers look again too, as it may have changed back since.
void note_change(Entry& entry, const JitFunction& jit) {
  CallCache& cache = cache_in(entry.value.get());
  const auto known = entry.owners.find(jit.function);
  const SeenCallable before = known == entry.owners.end() ? nullptr : known->second.seen;
  if (before && before->is_still(jit.function)) return;
  const StaticValue value = StaticValue::loose(Ref::borrow(jit.function));
  auto now = std::make_shared<const StaticValue>(value.sealed(nullptr, cache.callables));
  const auto owner = entry.owners.find(jit.function);  // again, as Python has run
  if (owner != entry.owners.end()) owner->second.seen = std::move(now);
  if (!before) return;
  cache.table.forget_user(jit.callable);
  ++cache.num_changes;
}

// Finds the cache of an equal callable with equal options, or makes one; `spec` becomes what it is found by.
Ref find_cache(JitFunction& jit, TreeSpec& spec) {
  // Seen first: a change from here on, by another thread, is noticed in the next call.
  SeenCallable seen = see_callable(jit);
  spec = root_spec(jit.function, jit.options, callables_of(jit.options));
  SharedCaches& caches = SharedCaches::instance();
  EntryPtr entry = caches.table.find(spec, CallShape(), jit);
  std::string difference;
  if (!entry) {
    difference = caches.table.difference(spec, CallShape(), jit);
    entry = caches.table.find_or_insert(spec, CallShape(), jit, false);
  }
  const bool is_new = !entry->value, is_tree = spec.nodes[1].kind != Kind::kStaticLeaf;
  Ref cache;
  try {
    if (is_new) {
      Ref made = box(std::make_unique<CallCache>(jit.function, jit.options));
      cache_in(made.get()).difference = std::move(difference);
      if (!entry->value) entry->value = std::move(made);  // else another thread was first
    }
    cache = entry->value;
    cache_in(cache.get()).root = entry;
    if (!is_tree && entry->key.statics[0].is_callable()) {
      caches.attach(entry, jit.function);
      note_change(*entry, jit);
    }
  } catch (...) {
    // Without a cache, or where nothing would tell when the callable goes.
    if (is_new && entry->owners.empty()) caches.table.erase(*entry);
    throw;
  }
  jit.callable_is_tree = is_tree;
  // Where another thread has changed the callable since it was seen, the next call looks again.
  const bool is_seen = seen == nullptr || seen->is_still(jit.function);
  if (!is_seen && !is_self_changing(jit.function)) return cache;
  set_cache(jit, cache, is_tree ? nullptr : std::move(seen));
  return cache;
}

}  // namespace

Ref ready_cache(JitFunction& jit) {
  function_of(jit);
  Ref cache = Ref::borrow(jit.cache);
  return cache && is_as_seen(jit) ? cache : renewed_cache(jit);
}

Ref renewed_cache(JitFunction& jit) {
  function_of(jit);
  TreeSpec spec;
  const auto roots = [&] {
    // Where the callable could not be looked at, the walk over it and the options says why.
    if (spec.nodes.empty()) spec = root_spec(jit.function, jit.options, callables_of(jit.options));
    return root_names();
  };
  return with_static_path(spec, roots, [&] { return find_cache(jit, spec); });
}

}  // namespace partax
