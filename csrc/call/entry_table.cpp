#include "call/entry_table.h"

#include <algorithm>

namespace partax {
namespace {

// How often a key is looked for again because others were added meanwhile; user code that adds keys while it compares
// them would keep a look-up going for ever.
constexpr int kMaxLookUps = 8;

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

bool Entry::is_for(const JitFunction& jit, bool made_anew, const ValueAt& value_at) {
  const auto is_it = [&](const Ref& user) { return weakly_is(user.get(), jit.callable); };
  if (!made_anew && std::any_of(users.begin(), users.end(), is_it)) return true;
  // A wrapper of a transformation is made of functions that it may know by identity; to a new function all is new.
  const bool is_function = PyFunction_Check(jit.callable) != 0 || PyMethod_Check(jit.callable) != 0;
  const bool knows_objects = !made_anew && !is_function;
  if (!knows_objects && key.guards != nullptr && !key.guards->of_same_objects().empty()) return false;
  if (!key.is_proven(value_at, jit.function)) return false;
  if (!made_anew) add_user(jit.callable);
  return true;
}

void Entry::add_user(PyObject* callable) {
  constexpr std::size_t kMost = 8;
  if (PyType_SUPPORTS_WEAKREFS(Py_TYPE(callable)) == 0) return;
  Ref user = Ref::checked(PyWeakref_NewRef(callable, nullptr));  // a collection may run Python, which may call it
  users.insert(users.begin(), std::move(user));
  if (users.size() > kMost) users.pop_back();
}

bool Entry::is_forsaken() const noexcept {
  const auto is_gone = [](const Ref& user) { return !weak_target(user.get()); };
  return tracing == 0 && value && !key.is_open() && std::all_of(users.begin(), users.end(), is_gone);
}

bool survives_owner(const Entry& entry) {
  if (!entry.key.survives_owner()) return false;
  for (const std::weak_ptr<OutputSlot>& output : entry.outputs) {
    const std::shared_ptr<OutputSlot> slot = output.lock();
    if (slot && slot->output && slot->output->holds_user_objects()) return false;
  }
  return true;
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
  needs_objects = needs_objects || !slot->output->held.empty() || !slot->output->alike.empty();
  is_of_one_call = is_of_one_call || slot->output->is_of_one_call;
  forwarded.swap(all);
}

ValueAt Entry::values(const LeafBuffer& leaves) const {
  return [this, &leaves](std::size_t index) {
    PyObject* own = leaves.own_static(index);
    return own != nullptr ? Ref::borrow(own) : key.statics[index].value();
  };
}

std::optional<Places> Entry::objects_apart(const ValueAt& value_at) const {
  if (!needs_objects) return {};
  // To let go of an object may run Python, which may trace once more.
  const std::vector<std::weak_ptr<OutputSlot>> all = outputs;
  for (const std::weak_ptr<OutputSlot>& held : all) {
    const std::shared_ptr<OutputSlot> slot = held.lock();
    const std::shared_ptr<const TraceOutput> output = slot ? slot->output : nullptr;
    if (!output) continue;
    if (const auto found = output->objects_apart(value_at)) return found;
  }
  return {};
}

EntryTable::~EntryTable() {
  if (callback_) address_in(PyCFunction_GET_SELF(callback_.get())) = nullptr;
  clear();
}

PyObject* EntryTable::on_death(PyObject* capsule, PyObject* weakref) noexcept {
  const Turn turn;
  EntryTable* table = address_in(capsule);
  if (table == nullptr) Py_RETURN_NONE;
  const auto found = table->by_weakref_.find(weakref);
  if (found == table->by_weakref_.end()) Py_RETURN_NONE;
  const Part part = found->second;
  const EntryPtr entry = *part.entry->recency;
  const Ref keep = Ref::borrow(weakref);
  if (part.owner != nullptr) {
    table->by_weakref_.erase(found);
    entry->owners.erase(part.owner);
    if (!entry->owners.empty()) Py_RETURN_NONE;
  }
  if (!part.is_callable || !table->stays_without_(entry, part.owner != nullptr)) table->erase(*entry);
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

void EntryTable::forget_user(PyObject* callable) noexcept {
  for (const EntryPtr& entry : recency_) {
    if (entry->key.guards == nullptr || !entry->key.guards->has_function()) continue;
    const auto is_it = [&](const Ref& user) { return weakly_is(user.get(), callable); };
    entry->users.erase(std::remove_if(entry->users.begin(), entry->users.end(), is_it), entry->users.end());
  }
}

void EntryTable::attach(const EntryPtr& entry, PyObject* callable) {
  const auto known = entry->owners.find(callable);
  if (known != entry->owners.end() && weakly_is(known->second.weakref.get(), callable)) return;
  const Ref weakref = Ref::checked(PyWeakref_NewRef(callable, callback()));
  if (entry->table != this) return;
  by_weakref_.emplace(weakref.get(), Part{entry.get(), true, callable});
  try {
    Entry::Owner& owner = entry->owners[callable];
    by_weakref_.erase(owner.weakref.get());
    owner = {weakref, nullptr};
  } catch (...) {
    by_weakref_.erase(weakref.get());
    throw;
  }
}

std::vector<EntryPtr> EntryTable::candidates(const TreeSpec& spec, const CallShape& shape) const {
  std::vector<EntryPtr> found;
  const auto range = entries_.equal_range(spec.hash ^ shape.hash());
  for (auto it = range.first; it != range.second; ++it) found.push_back(it->second);
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a->used > b->used; });
  return found;
}

EntryPtr EntryTable::find(const TreeSpec& spec, const CallShape& shape, const JitFunction& jit) {
  const ValueAt value_at = spec.values();
  for (const EntryPtr& entry : candidates(spec, shape)) {
    if (entry->epoch != TypeTable::instance().epoch() || !(entry->shape == shape)) continue;
    const MadeAnew made_anew;
    if (!entry->key.equals(spec) || entry->objects_apart(value_at)) continue;
    if (!entry->is_for(jit, made_anew.any(), value_at)) continue;
    if (entry->table != this) continue;
    touch(*entry);
    return entry;
  }
  return nullptr;
}

std::optional<Places> EntryTable::objects_apart(const TreeSpec& spec, const CallShape& shape) const {
  for (const EntryPtr& entry : candidates(spec, shape)) {
    if (entry->key.statics.size() != spec.statics.size()) continue;
    if (const auto found = entry->objects_apart(spec.values())) return found;
  }
  return {};
}

std::string EntryTable::difference(const TreeSpec& spec, const CallShape& shape, const JitFunction& jit) const {
  const ValueAt value_at = spec.values();
  for (const EntryPtr& entry : candidates(spec, shape)) {
    const MadeAnew made_anew;
    std::string found;
    if (entry->value && entry->shape == shape && entry->key.equals(spec) &&
        !entry->is_for(jit, made_anew.any(), value_at)) {
      if (entry->key.guards != nullptr) found = entry->key.guards->of_same_objects();
      if (found.empty()) entry->key.is_proven(value_at, jit.function, &found);
    }
    if (!found.empty()) return found;
  }
  return {};
}

EntryPtr EntryTable::find_or_insert(const TreeSpec& spec, const CallShape& shape, const JitFunction& jit,
                                    bool of_call) {
  std::size_t known = additions_;
  if (EntryPtr found = find(spec, shape, jit)) return found;
  for (const EntryPtr& entry : candidates(spec, shape)) {
    if (entry->is_forsaken()) erase(*entry);
  }
  auto entry = std::make_shared<Entry>();
  entry->key = spec.sealed(callback());
  entry->key.guard(spec, of_call && !jit.callable_is_tree ? jit.function : nullptr);
  entry->add_user(jit.callable);
  entry->epoch = TypeTable::instance().epoch();
  // Python has run: another thread may have added the key.
  for (int i = 0; i < kMaxLookUps && known != additions_; ++i) {
    known = additions_;
    if (EntryPtr found = find(spec, shape, jit)) return found;
  }
  entry->shape = shape;
  entry->hash = spec.hash ^ shape.hash();
  entry->used = ++uses_;
  std::list<EntryPtr> place(1, entry);  // before anything has changed, as it may fail
  enlist(entry);
  std::list<EntryPtr> evicted;
  if (recency_.size() >= max_size_ && !recency_.empty()) evicted = take(*recency_.back());
  recency_.splice(recency_.begin(), place);
  entry->recency = recency_.begin();
  entry->table = this;
  return entry;
}

void EntryTable::enlist(const EntryPtr& entry) {
  const TreeSpec& key = entry->key;
  try {
    key.each_weakref([&](PyObject* weakref, bool of_callable) {
      by_weakref_.emplace(weakref, Part{entry.get(), of_callable, nullptr});
    });
    entries_.emplace(entry->hash, entry);
  } catch (...) {
    key.each_weakref([&](PyObject* weakref, bool) { by_weakref_.erase(weakref); });
    throw;
  }
  ++additions_;
}

std::list<EntryPtr> EntryTable::take(Entry& entry) noexcept {
  std::list<EntryPtr> taken;
  if (entry.table != this) return taken;
  entry.table = nullptr;
  taken.splice(taken.begin(), recency_, entry.recency);
  entry.key.each_weakref([&](PyObject* weakref, bool) { by_weakref_.erase(weakref); });
  for (const auto& [callable, owner] : entry.owners) by_weakref_.erase(owner.weakref.get());
  const auto range = entries_.equal_range(entry.hash);
  for (auto it = range.first; it != range.second; ++it) {
    if (it->second.get() != &entry) continue;
    entries_.erase(it);
    break;
  }
  return taken;
}

void EntryTable::erase(Entry& entry) noexcept { const std::list<EntryPtr> dropped = take(entry); }

void EntryTable::erase_untraced(Entry& entry) noexcept {
  if (entry.traces == 0 && entry.tracing == 0) erase(entry);
}

int Entry::traverse(visitproc visit, void* arg) const {
  const bool has_changed = objects && objects->changed.use_count() == 1;
  if (const int status = has_changed ? objects->changed->traverse(visit, arg) : 0) return status;
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
