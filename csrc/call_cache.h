// Entries keyed by static parts: bounded, least recently used first out, and dropped when something in a key dies.
#pragma once

#include <list>
#include <memory>
#include <unordered_map>

#include "call_signature.h"
#include "python_api.h"
#include "trace_output.h"
#include "tree_spec.h"

namespace partax {

// One trace of an entry: its number among the callable's, and its calls where its result tells them from others'.
struct EntryTrace {
  std::size_t number;
  std::shared_ptr<std::size_t> calls;
};

struct Entry {
  Entry() = default;
  ~Entry();  // empties the slots of its outputs
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;
  void add_output(const std::shared_ptr<OutputSlot>& slot);

  TreeSpec key;  // sealed
  CallShape shape;
  std::size_t hash = 0;
  std::uint64_t epoch = 0;
  Ref value;  // the jitted target; empty while it is being made
  Ref draft;  // what the target is made of, which all threads that make it at once have in common
  std::size_t traces = 0;
  std::size_t tracing = 0;  // traces under way, in any thread
  std::size_t calls = 0;
  std::vector<EntryTrace> log;           // of its traces
  std::vector<std::uint8_t> pinned;      // leaves that may not be forwarded: donated, or with a sharding of their own
  std::vector<std::uint8_t> donated;     // for each leaf, whether the target donates it; empty if it donates none
  std::vector<std::uint32_t> forwarded;  // the leaves that some trace forwards, in order
  std::vector<std::weak_ptr<OutputSlot>> outputs;
  std::unordered_map<PyObject*, Ref> owners;  // of shared caches: weak references to the callables that live
  std::vector<TreeSpec> former;               // keys that were replaced, which a comparison may still be reading
  std::weak_ptr<Entry> successor;  // the entry that followed this one last time: the first guess when it differs
  bool in_table = false;
  std::list<std::shared_ptr<Entry>>::iterator recency;
};
using EntryPtr = std::shared_ptr<Entry>;

class StaticTable {
 public:
  explicit StaticTable(std::size_t max_size) : max_size_(max_size) {}
  ~StaticTable();
  StaticTable(const StaticTable&) = delete;
  StaticTable& operator=(const StaticTable&) = delete;

  // The entry of an equal key, which becomes the most recent one; or null. Errors as of TreeSpec::equals.
  EntryPtr find(const TreeSpec& spec, const CallShape& shape);
  // The same, or a new entry without a value; drops the least recently used one if there are too many. Threads that
  // look for one key at once get one entry.
  EntryPtr find_or_insert(const TreeSpec& spec, const CallShape& shape);
  // Gives an entry another key, by which alone it is found from then on.
  void rekey(Entry& entry, const TreeSpec& spec);
  // The entry used last, or null.
  EntryPtr latest() const noexcept { return recency_.empty() ? EntryPtr() : recency_.front(); }
  void touch(Entry& entry) noexcept { recency_.splice(recency_.begin(), recency_, entry.recency); }
  void erase(Entry& entry) noexcept;
  // After a call that failed: drops an entry that no call has traced or is tracing.
  void erase_untraced(Entry& entry) noexcept;
  // Drops the entries that `unwanted(entry)` is true for; it must not run user code.
  template <typename Unwanted>
  void erase_if(Unwanted&& unwanted) {
    std::list<EntryPtr> dropped;  // destroyed at the end, when the table is consistent
    for (auto it = recency_.begin(); it != recency_.end();) {
      Entry& entry = **it++;
      if (unwanted(entry)) dropped.splice(dropped.end(), take(entry));
    }
  }
  void clear() noexcept;
  std::size_t size() const noexcept { return recency_.size(); }
  std::size_t max_size() const noexcept { return max_size_; }
  template <typename Visit>
  void each(Visit&& visit) const {
    for (const EntryPtr& entry : recency_) visit(*entry);
  }
  template <typename Visit>
  void each_shared(Visit&& visit) const {
    for (const EntryPtr& entry : recency_) visit(entry);
  }
  int traverse(visitproc visit, void* arg) const;

 private:
  static PyObject* on_death(PyObject* capsule, PyObject* weakref) noexcept;
  PyObject* callback();
  std::list<EntryPtr> take(Entry& entry) noexcept;  // out of all containers, for the caller to destroy
  void unlist(const Entry& entry, const TreeSpec& key, std::size_t hash) noexcept;
  // Makes the entry found by a key; if that fails, nothing has changed.
  void enlist(const EntryPtr& entry, const TreeSpec& key, std::size_t hash);

  std::size_t max_size_;
  std::list<EntryPtr> recency_;  // most recent first
  std::unordered_multimap<std::size_t, EntryPtr> entries_;
  std::unordered_map<PyObject*, Entry*> by_weakref_;
  std::shared_ptr<StaticTable*> self_;  // null once this table is gone; what the callback holds
  Ref callback_;
  std::size_t additions_ = 0;  // counts the keys that were added
};

}  // namespace partax
