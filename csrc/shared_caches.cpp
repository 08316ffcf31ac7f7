#include "shared_caches.h"

#include "described.h"

namespace partax {

struct SharedCaches::Owned {
  std::weak_ptr<Entry> entry;
  PyObject* callable;  // an address only
};

namespace {

constexpr const char* kCapsuleName = "partax.SharedCaches";

}  // namespace

SharedCaches& SharedCaches::instance() {
  static auto* const caches = new SharedCaches();  // never destroyed: the interpreter may be gone by then
  return *caches;
}

void SharedCaches::attach(const EntryPtr& entry, PyObject* callable) {
  const auto known = entry->owners.find(callable);
  if (known != entry->owners.end() && weakly_is(known->second.get(), callable)) return;
  static PyMethodDef method = {"_callable_died", on_death, METH_O, nullptr};
  auto owned = std::make_unique<Owned>(Owned{entry, callable});
  const Ref capsule = Ref::checked(PyCapsule_New(owned.get(), kCapsuleName, [](PyObject* dying) {
    delete static_cast<Owned*>(PyCapsule_GetPointer(dying, kCapsuleName));
  }));
  (void)owned.release();  // the capsule's now
  const Ref callback = Ref::checked(PyCFunction_New(&method, capsule.get()));
  entry->owners[callable] = Ref::checked(PyWeakref_NewRef(callable, callback.get()));
  stop_waiting([&](const std::weak_ptr<Entry>& other) { return other.expired() || other.lock() == entry; });
}

PyObject* SharedCaches::on_death(PyObject* capsule, PyObject* weakref) noexcept {
  return guarded<PyObject*>(nullptr, [&]() -> PyObject* {
    const auto* owned = static_cast<Owned*>(PyCapsule_GetPointer(capsule, kCapsuleName));
    const EntryPtr entry = owned->entry.lock();
    if (!entry) Py_RETURN_NONE;
    const auto found = entry->owners.find(owned->callable);
    if (found != entry->owners.end() && found->second.get() == weakref) {
      const Ref dropped = std::move(found->second);  // with `owned`, so after the erase
      entry->owners.erase(found);
      if (entry->owners.empty()) instance().wait(entry);
    }
    Py_RETURN_NONE;
  });
}

void SharedCaches::wait(const EntryPtr& entry) noexcept {
  if (!entry->in_table) return;
  if (!entry->key.may_wait()) return table_.erase(*entry);
  const Ref cache = entry->value;
  if (cache) cache_of(cache.get()).table.erase_if([](const Entry& known) { return !may_wait(known); });
  if (!entry->owners.empty()) return;  // what was dropped has run Python, and a thread has brought a new callable
  stop_waiting([](const std::weak_ptr<Entry>& other) { return other.expired(); });
  waiting_.push_back(entry);
  if (waiting_.size() <= kMaxWaiting) return;
  const EntryPtr dropped = waiting_.front().lock();
  waiting_.erase(waiting_.begin());
  if (dropped) table_.erase(*dropped);
}

Ref root_names() { return Ref::checked(Py_BuildValue("(ss)", "fun", "options")); }

TreeSpec root_spec(PyObject* function, PyObject* options, Callables callables) {
  const Ref key = attribute(options, "key");
  TreeSpec spec;
  LeafBuffer leaves;
  FlattenOptions flatten_options;
  flatten_options.callables = callables == Callables::kByStructure ? Callables::kWrapped : callables;
  PyObject* const values[] = {function, key.get()};
  flatten_call(spec, leaves, flatten_options, values, 2, root_names);
  return spec;
}

bool is_known(PyObject* function, const CallCache& cache) {
  const EntryPtr root = cache.root.lock();
  if (!root || !root->key.holds_callables()) return true;
  const TreeSpec spec = root_spec(function, cache.options.get(), cache.callables);
  try {
    return root->key.equals(spec);
  } catch (const WalkError& error) {
    raise_at_static(error, spec, root_names());
  }
}

}  // namespace partax
