#include "call/entry_table.h"

#include <algorithm>

namespace partax {
namespace {

// What the callback of a table holds: the table's address, or null once that is gone.
EntryTable*& address_in(PyObject* capsule) noexcept {
  return *static_cast<EntryTable**>(PyCapsule_GetPointer(capsule, nullptr));
}

}  // namespace

Entry::~Entry() {
  for (const std::weak_ptr<OutputSlot>& output : outputs) {
    if (const std::shared_ptr<OutputSlot> slot = output.lock()) slot->output.reset();
  }
}

CallableSummary Entry::callables() const {
  CallableSummary summary;
  std::size_t count = 0, num_alive = 0;
  key.each_callable([&](const CallableRecord& record) {
    ++count;
    num_alive += record.is_alive() ? 1 : 0;
    summary.are_provable = summary.are_provable && record.is_provable;
    summary.num_array_bytes += record.num_array_bytes;
  });
  summary.any_lives = num_alive > 0 || count == 0;
  return summary;
}

void Entry::add_output(const std::shared_ptr<OutputSlot>& slot) {
  if (outputs.size() == outputs.capacity()) {
    const auto gone = [](const std::weak_ptr<OutputSlot>& output) { return output.expired(); };
    outputs.erase(std::remove_if(outputs.begin(), outputs.end(), gone), outputs.end());
  }
  std::vector<std::uint32_t> all = forwarded;
  for (const std::int32_t source : slot->output->source) {
    if (source < 0) all.push_back(~static_cast<std::uint32_t>(source));
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  outputs.push_back(slot);
  forwarded.swap(all);
}

// ---- Entries whose callables are gone.

namespace {

// A re-created callable may still get the programs of one that is gone, such as a lambda in a loop. The latest of these
// entries are kept, of all tables together.
class OrphanedEntries {
 public:
  static OrphanedEntries& instance() {
    static auto* const entries = new OrphanedEntries();  // never destroyed: the interpreter may be gone by then
    return *entries;
  }

  void add(const EntryPtr& entry) {
    entries_.remove_if([&](const auto& other) { return other.expired() || other.lock() == entry; });
    entries_.push_back(entry);
    std::size_t count = 0, bytes = 0;
    std::list<EntryPtr> dropped;  // destroyed at the end, as that may run Python
    for (auto place = entries_.rbegin(); place != entries_.rend(); ++place) {
      EntryPtr other = place->lock();
      const CallableSummary callables = other ? other->callables() : CallableSummary();
      if (callables.any_lives) continue;
      bytes += callables.num_array_bytes;
      if (++count > kMaxEntries || bytes > kMaxBytes) dropped.push_back(std::move(other));
    }
    for (const EntryPtr& other : dropped) {
      if (other->table != nullptr) other->table->erase(*other);
    }
  }

 private:
  static constexpr std::size_t kMaxEntries = 256;
  static constexpr std::size_t kMaxBytes = std::size_t{64} << 20;  // of captured arrays
  OrphanedEntries() = default;
  std::list<std::weak_ptr<Entry>> entries_;  // latest last
};

}  // namespace

EntryTable::~EntryTable() {
  if (callback_) address_in(PyCFunction_GET_SELF(callback_.get())) = nullptr;
  clear();
}

PyObject* EntryTable::on_death(PyObject* capsule, PyObject* weakref) noexcept {
  const Turn turn;
  EntryTable* table = address_in(capsule);
  if (table == nullptr) Py_RETURN_NONE;
  const auto place = table->by_weakref_.find(weakref);
  if (place == table->by_weakref_.end()) Py_RETURN_NONE;
  const Part part = place->second;
  const EntryPtr entry = *part.entry->recency;
  const Ref keep = Ref::borrow(weakref);
  try {
    if (part.is_callable && entry->callables().are_provable) {
      OrphanedEntries::instance().add(entry);
    } else {
      table->erase(*entry);
    }
  } catch (...) {  // memory is short
    PyErr_Clear();
    table->erase(*entry);
  }
  Py_RETURN_NONE;
}

PyObject* EntryTable::callback() {
  if (!callback_) {
    static PyMethodDef method = {"_key_died", on_death, METH_O, nullptr};
    auto address = std::make_unique<EntryTable*>(this);
    const auto drop = [](PyObject* dying) { delete &address_in(dying); };
    const Ref self = Ref::checked(PyCapsule_New(address.get(), nullptr, drop));
    (void)address.release();  // the capsule's now
    Ref made = Ref::checked(PyCFunction_New(&method, self.get()));
    if (!callback_) callback_ = std::move(made);
  }
  return callback_.get();
}

std::vector<EntryPtr> EntryTable::candidates(const TreeSpec& spec, const CallShape& shape) const {
  std::vector<EntryPtr> candidates;
  const auto range = entries_.equal_range(spec.hash ^ shape.hash());
  for (auto place = range.first; place != range.second; ++place) candidates.push_back(place->second);
  std::sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) { return a->used > b->used; });
  return candidates;
}

EntryPtr EntryTable::find(const TreeSpec& spec, const CallShape& shape) {
  for (const EntryPtr& entry : candidates(spec, shape)) {
    if (entry->epoch != TypeTable::instance().epoch() || !(entry->shape == shape)) continue;
    if (!entry->key.equals(spec) || entry->table != this) continue;
    touch(*entry);
    return entry;
  }
  return nullptr;
}

std::pair<std::size_t, std::string> EntryTable::difference(const TreeSpec& spec, const CallShape& shape) const {
  for (const EntryPtr& entry : candidates(spec, shape)) {
    if (!entry->value || !(entry->shape == shape)) continue;
    auto difference = entry->key.difference(spec);
    if (!difference.second.empty()) return difference;
  }
  return {};
}

EntryPtr EntryTable::find_or_insert(const TreeSpec& spec, const CallShape& shape) {
  const std::size_t count = additions_;
  if (EntryPtr equal_entry = find(spec, shape)) return equal_entry;
  auto entry = std::make_shared<Entry>();
  entry->key = spec.sealed(callback());
  entry->epoch = TypeTable::instance().epoch();
  if (count != additions_) {  // Python has run: another thread may have added the key
    if (EntryPtr equal_entry = find(spec, shape)) return equal_entry;
  }
  entry->shape = shape;
  entry->hash = spec.hash ^ shape.hash();
  entry->used = ++uses_;
  std::list<EntryPtr> place(1, entry);  // before anything has changed, as it may fail
  enlist(entry);
  std::list<EntryPtr> evicted;
  if (recency_.size() >= max_size_ && !recency_.empty()) evicted = unlink(*recency_.back());
  recency_.splice(recency_.begin(), place);
  entry->recency = recency_.begin();
  entry->table = this;
  return entry;
}

void EntryTable::enlist(const EntryPtr& entry) {
  const TreeSpec& key = entry->key;
  try {
    key.each_weakref(
        [&](PyObject* weakref, bool of_callable) { by_weakref_.emplace(weakref, Part{entry.get(), of_callable}); });
    entries_.emplace(entry->hash, entry);
  } catch (...) {
    key.each_weakref([&](PyObject* weakref, bool) { by_weakref_.erase(weakref); });
    throw;
  }
  ++additions_;
}

std::list<EntryPtr> EntryTable::unlink(Entry& entry) noexcept {
  std::list<EntryPtr> list_node;
  if (entry.table != this) return list_node;
  entry.table = nullptr;
  list_node.splice(list_node.begin(), recency_, entry.recency);
  entry.key.each_weakref([&](PyObject* weakref, bool) { by_weakref_.erase(weakref); });
  const auto range = entries_.equal_range(entry.hash);
  for (auto place = range.first; place != range.second; ++place) {
    if (place->second.get() != &entry) continue;
    entries_.erase(place);
    break;
  }
  return list_node;
}

void EntryTable::erase(Entry& entry) noexcept { const std::list<EntryPtr> dropped = unlink(entry); }

void EntryTable::erase_untraced(Entry& entry) noexcept {
  if (entry.traces == 0 && entry.tracing == 0) erase(entry);
}

int Entry::traverse(visitproc visit, void* arg) const {
  if (const int status = objects ? visit_all(visit, arg, objects->traces) : 0) return status;
  return visit_all(visit, arg, value, program, stored, function, key);
}

int EntryTable::traverse(visitproc visit, void* arg) const {
  // The table has each entry twice: by its hash too.
  constexpr long kOwn = 2;
  for (const EntryPtr& entry : recency_) {
    if (const int status = entry.use_count() > kOwn ? 0 : entry->traverse(visit, arg)) return status;
  }
  return visit_all(visit, arg, callback_);
}

}  // namespace partax
