#include "call/shared_caches.h"

#include "call/cache_object.h"
#include "call/flatten_call.h"
#include "tree/spec_data.h"

namespace partax {

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

Ref root_names() { return Ref::checked(Py_BuildValue("(ss)", "fun", "options")); }

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

bool is_known(PyObject* function, const CallCache& cache) {
  const EntryPtr root = cache.root.lock();
  if (!root || !root->key.holds_callables()) return true;
  const TreeSpec spec = root_spec(function, cache.options.get(), cache.callables);
  try {
    const MadeAnew made_anew;
    return root->key.equals(spec) &&
           root->is_for(function, made_anew.any(), [&](std::size_t i) { return spec.statics[i].value(); });
  } catch (const WalkError& error) {
    raise_at_static(error, spec, root_names());
  }
}

}  // namespace partax
