// The caches of all wrapped callables, by their static part; which a wrapper uses, and how long they are kept.
#pragma once

#include <algorithm>

#include "call/call_cache.h"
#include "call/jit_function.h"

namespace partax {

// It keeps no callable alive. A cache goes with its callables; but that of one which can be made anew, as a lambda in a
// loop, waits for its like: of the caches whose callables are all gone the latest are kept, if they hold no array and
// no object of the user's.
class SharedCaches {
 public:
  static constexpr std::size_t kMaxWaiting = 256;
  static SharedCaches& instance();

  EntryPtr find(const TreeSpec& spec, PyObject* callable) { return table_.find(spec, CallShape(), callable); }
  EntryPtr find_or_insert(const TreeSpec& spec, PyObject* callable) {
    return table_.find_or_insert(spec, CallShape(), callable);
  }
  std::string difference(const TreeSpec& spec, PyObject* callable) const {
    return table_.difference(spec, CallShape(), callable);
  }
  void erase(const EntryPtr& entry) noexcept { table_.erase(*entry); }
  // Visits the entries in use; `visit` must not run Python code.
  template <typename Visit>
  void each(Visit&& visit) const {
    table_.each([&](const EntryPtr& entry) {
      for (const std::weak_ptr<Entry>& other : waiting_) {
        if (other.lock() == entry) return;
      }
      visit(entry);
    });
  }
  // The entry is in use as long as `callable` lives.
  void attach(const EntryPtr& entry, PyObject* callable);

 private:
  SharedCaches() { waiting_.reserve(kMaxWaiting + 1); }
  // Has an entry wait whose callables are all gone, if it may. Runs as the callback of a weak reference: needs no
  // memory.
  bool survives_owner(const EntryPtr& entry) noexcept;
  template <typename Condition>
  void stop_waiting(Condition&& condition) {
    waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(), condition), waiting_.end());
  }

  EntryTable table_{1 << 14,
                    [](const EntryPtr& entry, bool unowned) { return !unowned || instance().survives_owner(entry); }};
  std::vector<std::weak_ptr<Entry>> waiting_;  // oldest first; never grows, since a callable's death cannot fail
};

// The static part by which the cache of a callable is found.
TreeSpec root_spec(PyObject* function, PyObject* options, Callables callables);

// The cache of a wrapper, found or made; it stays whatever other threads do to the wrapper meanwhile.
Ref ready_cache(JitFunction& jit);
// The same, but another one if the callable has changed since the cache was found.
Ref renewed_cache(JitFunction& jit);

}  // namespace partax
