#include "dispatch/program_table.h"

#include <algorithm>

namespace partax {
namespace {

// What the callback of a table holds: the table's address, or null once that is gone.
ProgramTable*& address_in(PyObject* capsule) noexcept {
  return *static_cast<ProgramTable**>(PyCapsule_GetPointer(capsule, nullptr));
}

}  // namespace

Program::~Program() {
  for (const std::weak_ptr<OutputSlot>& output : outputs) {
    if (const std::shared_ptr<OutputSlot> slot = output.lock()) slot->output.reset();
  }
}

CallableSummary Program::callables() const {
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

void Program::add_output(const std::shared_ptr<OutputSlot>& slot) {
  if (outputs.size() == outputs.capacity()) {
    const auto gone = [](const std::weak_ptr<OutputSlot>& output) { return output.expired(); };
    outputs.erase(std::remove_if(outputs.begin(), outputs.end(), gone), outputs.end());
  }
  std::vector<std::uint32_t> all = leaves.forwarded;
  for (const std::int32_t source : slot->output->source) {
    if (source < 0) all.push_back(~static_cast<std::uint32_t>(source));
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  outputs.push_back(slot);
  leaves.forwarded.swap(all);
}

// ---- Programs whose callables are gone.

namespace {

// A re-created callable may still get the programs of one that is gone, such as a lambda in a loop. The latest of these
// programs are kept, of all tables together.
class OrphanedPrograms {
 public:
  static OrphanedPrograms& instance() {
    static auto* const programs = new OrphanedPrograms();  // never destroyed: the interpreter may be gone by then
    return *programs;
  }

  void add(const ProgramPtr& program) {
    programs_.remove_if([&](const auto& other) { return other.expired() || other.lock() == program; });
    programs_.push_back(program);
    std::size_t count = 0, bytes = 0;
    std::list<ProgramPtr> dropped;  // destroyed at the end, as that may run Python
    for (auto place = programs_.rbegin(); place != programs_.rend(); ++place) {
      ProgramPtr other = place->lock();
      const CallableSummary callables = other ? other->callables() : CallableSummary();
      if (callables.any_lives) continue;
      bytes += callables.num_array_bytes;
      if (++count > kMaxEntries || bytes > kMaxBytes) dropped.push_back(std::move(other));
    }
    for (const ProgramPtr& other : dropped) {
      if (other->place.table != nullptr) other->place.table->erase(*other);
    }
  }

 private:
  static constexpr std::size_t kMaxEntries = 256;
  static constexpr std::size_t kMaxBytes = std::size_t{64} << 20;  // of captured arrays
  OrphanedPrograms() = default;
  std::list<std::weak_ptr<Program>> programs_;  // latest last
};

}  // namespace

ProgramTable::~ProgramTable() {
  if (callback_) address_in(PyCFunction_GET_SELF(callback_.get())) = nullptr;
  clear();
}

PyObject* ProgramTable::on_death(PyObject* capsule, PyObject* weakref) noexcept {
  const Turn turn;
  ProgramTable* table = address_in(capsule);
  if (table == nullptr) Py_RETURN_NONE;
  const auto place = table->by_weakref_.find(weakref);
  if (place == table->by_weakref_.end()) Py_RETURN_NONE;
  const Part part = place->second;
  const ProgramPtr program = *part.program->place.recency;
  const Ref keep = Ref::borrow(weakref);
  try {
    if (part.is_callable && program->callables().are_provable) {
      OrphanedPrograms::instance().add(program);
    } else {
      table->erase(*program);
    }
  } catch (...) {  // memory is short
    PyErr_Clear();
    table->erase(*program);
  }
  Py_RETURN_NONE;
}

PyObject* ProgramTable::callback() {
  if (!callback_) {
    static PyMethodDef method = {"_key_died", on_death, METH_O, nullptr};
    auto address = std::make_unique<ProgramTable*>(this);
    const auto drop = [](PyObject* dying) { delete &address_in(dying); };
    const Ref self = Ref::checked(PyCapsule_New(address.get(), nullptr, drop));
    (void)address.release();  // the capsule's now
    Ref made = Ref::checked(PyCFunction_New(&method, self.get()));
    if (!callback_) callback_ = std::move(made);
  }
  return callback_.get();
}

std::vector<ProgramPtr> ProgramTable::candidates(const TreeSpec& spec, const CallShape& shape) const {
  std::vector<ProgramPtr> candidates;
  const auto range = by_hash_.equal_range(spec.hash ^ shape.hash());
  for (auto place = range.first; place != range.second; ++place) candidates.push_back(place->second);
  std::sort(candidates.begin(), candidates.end(),
            [](const auto& a, const auto& b) { return a->place.used > b->place.used; });
  return candidates;
}

ProgramPtr ProgramTable::find(const TreeSpec& spec, const CallShape& shape) {
  for (const ProgramPtr& program : candidates(spec, shape)) {
    if (program->epoch != TypeTable::instance().epoch() || !(program->shape == shape)) continue;
    if (!program->key.equals(spec) || !program->is_in(*this)) continue;
    touch(*program);
    return program;
  }
  return nullptr;
}

std::pair<std::size_t, std::string> ProgramTable::difference(const TreeSpec& spec, const CallShape& shape) const {
  for (const ProgramPtr& program : candidates(spec, shape)) {
    if ((!program->target.jitted && !program->cache) || !(program->shape == shape)) continue;
    auto difference = program->key.difference(spec);
    if (!difference.second.empty()) return difference;
  }
  return {};
}

ProgramPtr ProgramTable::find_or_insert(const TreeSpec& spec, const CallShape& shape) {
  const std::size_t count = additions_;
  if (ProgramPtr equal_program = find(spec, shape)) return equal_program;
  auto program = std::make_shared<Program>();
  program->key = spec.sealed(callback());
  program->epoch = TypeTable::instance().epoch();
  if (count != additions_) {  // Python has run: another thread may have added the key
    if (ProgramPtr equal_program = find(spec, shape)) return equal_program;
  }
  program->shape = shape;
  program->place.hash = spec.hash ^ shape.hash();
  program->place.used = ++uses_;
  std::list<ProgramPtr> place(1, program);  // before anything has changed, as it may fail
  enlist(program);
  std::list<ProgramPtr> evicted;
  if (recency_.size() >= max_size_ && !recency_.empty()) evicted = unlink(*recency_.back());
  recency_.splice(recency_.begin(), place);
  program->place.recency = recency_.begin();
  program->place.table = this;
  return program;
}

void ProgramTable::enlist(const ProgramPtr& program) {
  const TreeSpec& key = program->key;
  try {
    key.each_weakref(
        [&](PyObject* weakref, bool of_callable) { by_weakref_.emplace(weakref, Part{program.get(), of_callable}); });
    by_hash_.emplace(program->place.hash, program);
  } catch (...) {
    key.each_weakref([&](PyObject* weakref, bool) { by_weakref_.erase(weakref); });
    throw;
  }
  ++additions_;
}

std::list<ProgramPtr> ProgramTable::unlink(Program& program) noexcept {
  std::list<ProgramPtr> list_node;
  if (!program.is_in(*this)) return list_node;
  program.place.table = nullptr;
  list_node.splice(list_node.begin(), recency_, program.place.recency);
  program.key.each_weakref([&](PyObject* weakref, bool) { by_weakref_.erase(weakref); });
  const auto range = by_hash_.equal_range(program.place.hash);
  for (auto place = range.first; place != range.second; ++place) {
    if (place->second.get() != &program) continue;
    by_hash_.erase(place);
    break;
  }
  return list_node;
}

void ProgramTable::erase(Program& program) noexcept { const std::list<ProgramPtr> dropped = unlink(program); }

void ProgramTable::erase_untraced(Program& program) noexcept {
  if (program.traces.empty() && program.tracing == 0 && program.calls == 0) erase(program);
}

int Program::traverse(visitproc visit, void* arg) const {
  return visit_all(visit, arg, cache, target.jitted, target.callable, target.stored, target.function, key);
}

int ProgramTable::traverse(visitproc visit, void* arg) const {
  // The table has each program twice: by its hash too.
  constexpr long kOwn = 2;
  for (const ProgramPtr& program : recency_) {
    if (const int status = program.use_count() > kOwn ? 0 : program->traverse(visit, arg)) return status;
  }
  return visit_all(visit, arg, callback_);
}

}  // namespace partax
