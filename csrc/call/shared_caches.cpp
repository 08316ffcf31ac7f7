#include "call/shared_caches.h"

#include "tree/spec_data.h"

namespace partax {
namespace {

// The roots of its paths.
Ref root_names() { return Ref::checked(Py_BuildValue("(ss)", "fun", "options")); }

}  // namespace

SharedCaches& SharedCaches::instance() {
  static auto* const caches = new SharedCaches();  // never destroyed: the interpreter may be gone by then
  return *caches;
}

void SharedCaches::attach(const EntryPtr& entry, PyObject* callable) {
  table_.attach(entry, callable);
  stop_waiting([&](const std::weak_ptr<Entry>& other) { return other.expired() || other.lock() == entry; });
}

bool SharedCaches::survives_owner(const EntryPtr& entry) noexcept {
  if (!entry->key.survives_owner()) return false;
  const Ref cache = entry->value;
  if (cache) cache_in(cache.get()).table.erase_if([](const Entry& known) { return !partax::survives_owner(known); });
  if (!entry->owners.empty()) return true;  // what was dropped has run Python, and a thread has brought a new callable
  stop_waiting([](const std::weak_ptr<Entry>& other) { return other.expired(); });
  waiting_.push_back(entry);
  if (waiting_.size() <= kMaxWaiting) return true;
  const EntryPtr dropped = waiting_.front().lock();
  waiting_.erase(waiting_.begin());
  if (dropped) table_.erase(*dropped);
  return true;
}

TreeSpec root_spec(PyObject* function, PyObject* options, Callables callables) {
  const Ref key = attribute(options, "key");
  TreeSpec spec;
  LeafBuffer leaves;
  FlattenOptions flatten_options;
  flatten_options.callables = callables;
  PyObject* const values[] = {function, key.get()};
  flatten_call(spec, leaves, flatten_options, values, 2, root_names);
  return spec;
}

// ---- Which cache a wrapper uses: that of all callables like its own.

namespace {

// Whether the callable is as it was when the cache was found.
bool is_as_seen(const JitFunction& jit) {
  const SeenCallable seen = jit.seen;
  return seen == nullptr || seen->is_still(jit.function) || is_self_changing(jit.function);
}

// Both at once, and only then lets go of what was there, which may run Python.
void set_cache(JitFunction& jit, Ref cache, SeenCallable seen) noexcept {
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

// Finds the cache of an equal callable with equal options, or makes one.
Ref find_cache(JitFunction& jit) {
  // Seen first: a change from here on, by another thread, is noticed in the next call.
  SeenCallable seen;
  TreeSpec spec;
  try {
    seen = see_callable(jit);
    spec = root_spec(jit.function, jit.options, callables_of(jit.options));
    SharedCaches& caches = SharedCaches::instance();
    EntryPtr entry = caches.find(spec, jit.callable);
    const bool is_new = !entry || !entry->value;
    if (is_new) {
      Ref made = make_cache(jit.function, jit.options);
      cache_in(made.get()).difference = caches.difference(spec, jit.callable);
      if (!entry) entry = caches.find_or_insert(spec, jit.callable);
      if (!entry->value) entry->value = std::move(made);  // else another thread was first
    }
    Ref cache = entry->value;
    const bool is_tree = spec.nodes[1].kind != Kind::kStaticLeaf;
    cache_in(cache.get()).root = entry;
    try {
      if (!is_tree && entry->key.statics[0].is_callable()) caches.attach(entry, jit.function);
    } catch (...) {
      // Nothing would tell when the callable goes.
      if (is_new && entry->owners.empty()) caches.erase(entry);
      throw;
    }
    jit.callable_is_tree = is_tree;
    // Where another thread has changed the callable since it was seen, the next call looks again.
    const bool is_seen = seen == nullptr || seen->is_still(jit.function);
    if (!is_seen && !is_self_changing(jit.function)) return cache;
    set_cache(jit, cache, is_tree ? nullptr : std::move(seen));
    return cache;
  } catch (const WalkError& error) {
    // Where the callable could not be looked at, the walk over it and the options says why.
    if (spec.nodes.empty()) spec = root_spec(jit.function, jit.options, callables_of(jit.options));
    raise_at_static(error, spec, root_names());
  }
}

// Whether the cache is found by what the callable is now.
bool is_known(PyObject* function, const CallCache& cache) {
  const EntryPtr root = cache.root.lock();
  if (!root || !root->key.holds_callables()) return true;
  const TreeSpec spec = root_spec(function, cache.options.get(), cache.callables);
  try {
    const MadeAnew made_anew;
    return root->key.equals(spec) && root->is_for(function, made_anew.any(), spec.values());
  } catch (const WalkError& error) {
    raise_at_static(error, spec, root_names());
  }
}

}  // namespace

Ref ready_cache(JitFunction& jit) {
  if (jit.function == nullptr) {
    set_released();
    throw PythonError{};
  }
  Ref cache = Ref::borrow(jit.cache);
  if (cache && is_as_seen(jit)) return cache;
  return find_cache(jit);
}

Ref renewed_cache(JitFunction& jit) {
  Ref cache = ready_cache(jit);
  if (is_known(jit.function, cache_in(cache.get()))) return cache;
  return find_cache(jit);
}

}  // namespace partax
