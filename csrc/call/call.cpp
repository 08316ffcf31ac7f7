#include "call/call.h"

#include <algorithm>
#include <tuple>

#include "base/python_hooks.h"
#include "call/output.h"
#include "call/trace.h"
#include "tree/match.h"
#include "tree/spec_data.h"

namespace partax {
namespace {

// Whether a leaf is an array of jax that has been deleted or donated.
bool is_deleted(PyObject* leaf) {
  const bool is_array =
      hooks().jax_array_type.is(Py_TYPE(leaf)) || TypeTable::instance().find(leaf).sort == LeafSort::kJaxArray;
  if (!is_array) return false;
  static Name name("is_deleted");
  return checked_int(PyObject_IsTrue(Ref::checked(PyObject_CallMethodNoArgs(leaf, name.get())).get())) == 1;
}

Ref bytes_of(const std::vector<std::uint8_t>& flags) {
  return Ref::checked(
      PyBytes_FromStringAndSize(reinterpret_cast<const char*>(flags.data()), static_cast<Py_ssize_t>(flags.size())));
}

// After a run: raises jax's error if an array that the call gives back is deleted. `liveness_checked` says that they
// had been checked before.
void check_forwarded(const Entry& entry, PyObject* returned, const LeafBuffer& leaves, bool liveness_checked) {
  if (!is_output_node(returned)) return;
  const std::shared_ptr<const TraceOutput> output = output_of(returned);
  for (const std::int32_t source : sources_of(returned)) {
    if (source >= 0) continue;
    const std::size_t i = ~static_cast<std::size_t>(source);
    if (!is_deleted(leaves[i])) continue;
    const Ref target = entry.value;
    const Ref index = number(i);
    python::raise_lost_array(target, leaves.tuple(), bytes_of(entry.donated), index, truth(liveness_checked));
    return;
  }
}

// After a call of an entry's target, by its bound program if there was one: prepares the next such call.
void update_bound_programs(const BoundArguments& bound, const Call& call, const EntryPtr& entry,
                           std::shared_ptr<BoundProgram> program, const Ref& returned) {
  constexpr std::size_t kMostPrograms = 16;
  const CallCache& cache = call.cache();
  BoundPrograms programs;  // those there were are dropped at the end, since that may run any code
  if (cache.graph && !call.objects().changed_values_alone()) {
    programs.swap(bound.programs());  // the objects have changed
    return;
  }
  if (entry->table != &cache.table || entry->blocks) return;
  const bool is_new = !program;
  if (is_new) program = BoundProgram::make(entry, bound.are_bound(call.jit(), cache.parameters), call.leaves());
  if (is_new && program) {
    programs.push_back(program);
    for (const auto& other : bound.programs()) {
      const EntryPtr its_entry = other->entry(cache.table);
      if (its_entry && its_entry != entry && programs.size() < kMostPrograms) programs.push_back(other);
    }
    programs.swap(bound.programs());
  }
  if (program) program->add_run(*entry, call.leaves(), returned);
}

// The static values of a call for which its key has equal ones.
void add_own_statics(const TreeSpec& key, const TreeSpec& spec, LeafBuffer& leaves) {
  for (std::size_t i = 0; i < key.statics.size(); ++i) {
    PyObject* value = spec.statics[i].identity();
    if (value != nullptr && !key.statics[i].is_object(value)) leaves.add_own_static(i, value);
  }
}

// Why the key of a new entry is not that of an earlier one of the same form, if that is due to a re-created callable.
std::string difference_of(const Call& call, const TreeSpec& spec) {
  const auto [index, text] = call.cache().table.difference(spec, call.bound().shape());
  return text.empty() ? text : "`" + static_path(spec, call.names(), index) + "`: " + text;
}

}  // namespace

// ---- A hit, in order.

Ref run_call(JitFunction& jit, PyObject* const* args, std::size_t num_args, PyObject* keyword_names,
             const BoundArguments* bound) {
  Call call(jit, ready_cache(jit), args, num_args, keyword_names);
  CallCache& cache = call.cache();
  CallFrame frame(call);
  if (cache.graph) take_static_cache();
  bool is_new = false;  // whether this call has built the target of its entry
  EntryPtr entry;
  Ref returned;                           // by the target, of which the user's result is made
  std::shared_ptr<BoundProgram> program;  // of bound arguments
  bool ran_directly = false;              // by `program`, without jax's own dispatch
  try {
    if (bound != nullptr) std::tie(entry, program) = call.find_bound(bound->programs());
    if (!entry) entry = call.find(frame, is_new);
    frame.entry = entry.get();
    if (bound != nullptr && !program && !entry->donated.empty() && !cache.graph) {
      refuse_donated(*entry, bound->are_bound(jit, cache.parameters));
    }
    refuse_lost_forwarded(*entry, call.leaves());
    const Ref target = entry->value, stored = entry->program;
    if (program) returned = program->run(call.leaves());
    ran_directly = static_cast<bool>(returned);
    if (!returned) returned = call.run(stored ? stored.get() : target.get(), *entry);
    frame.in_user_code = true;
    if (frame.holds_errors && !entry->blocks) {  // inside another program that one is asked
      entry->blocks = python::runs_compiled(call.leaves().tuple()).get() == Py_True;
    }
    if (entry->blocks) python::wait_for(returned);
  } catch (const PythonError&) {
    frame.in_user_code = true;
    if (entry) {
      cache.table.erase_untraced(*entry);
      explain_failure(frame);
    }
    throw;
  }
  Ref result = call.finish(returned, *entry, !frame.traced);
  if (bound != nullptr && !ran_directly) update_bound_programs(*bound, call, entry, std::move(program), returned);
  ++entry->calls;
  ++(frame.traced || frame.loaded || is_new ? cache.misses : cache.hits);
  return result;
}

EntryPtr Call::find(CallFrame& frame, bool& is_new) {
  if (EntryPtr entry = try_recent_entries()) return entry;
  if (cache_.graph && !objects_.has_read()) {
    objects_.read();
    if (EntryPtr entry = try_recent_entries()) return entry;
  }
  const EntryPtr latest = cache_.table.latest();
  EntryPtr entry = find_or_create_entry(frame, is_new);
  if (latest) latest->successor = entry;
  return entry;
}

std::pair<EntryPtr, std::shared_ptr<BoundProgram>> Call::find_bound(const BoundPrograms& programs) {
  for (std::size_t i = 0; i < programs.size();) {
    std::shared_ptr<BoundProgram> program = programs[i++];
    EntryPtr entry = program->entry(cache_.table);
    if (entry && try_entry(*entry, program.get())) return {std::move(entry), std::move(program)};
  }
  return {};
}

// The entry, if it is the last one or the one that followed that, which is known without hashing.
EntryPtr Call::try_recent_entries() {
  EntryPtr latest = cache_.table.latest();
  if (!latest || try_entry(*latest)) return latest;
  EntryPtr entry = latest->successor.lock();
  return entry && entry->table == &cache_.table && try_entry(*entry) ? entry : EntryPtr();
}

// Whether an entry of the table, which then becomes the most recent one, has the program of this call.
bool Call::try_entry(Entry& entry, const BoundProgram* bound) {
  if (!entry.value || entry.epoch != TypeTable::instance().epoch() || !matches(entry, bound)) return false;
  if (entry.table == &cache_.table) cache_.table.touch(entry);
  return true;
}

bool Call::matches(Entry& entry, const BoundProgram* bound) {
  if (!(entry.shape == bound_.shape())) return false;
  const KeptValues* const kept = bound == nullptr ? nullptr : &bound->kept();
  if (!match_call(entry.key, bound_.values(), bound_.size(), leaves_, abstract_, &cache_.rule, kept)) return false;
  const bool is_read = bound == nullptr || bound->read_variables(leaves_);
  if (is_read && (!cache_.graph || objects_.has_read() || objects_.are_matched(entry, leaves_))) return true;
  leaves_.clear();
  return false;
}

Ref Call::run(PyObject* program, const Entry& entry) {
  const Ref tuple = entry.takes_tuple ? leaves_.tuple() : Ref();
  const Away away;
  if (tuple) return Ref::checked(PyObject_CallOneArg(program, tuple.get()));
  return Ref::checked(
      PyObject_Vectorcall(program, leaves_.arguments(), leaves_.size() | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
}

Ref Call::finish(const Ref& returned, const Entry& entry, bool liveness_checked) {
  check_forwarded(entry, returned.get(), leaves_, liveness_checked);
  keep_nodes(entry);
  Ref result = user_result(returned.get(), leaves_);
  if (!cache_.graph) return result;
  objects_.record_completeness(entry, leaves_);
  return objects_.apply(result, entry, leaves_);
}

// Keeps the nodes of the call that some trace returns unchanged, where its values were read before that trace.
void Call::keep_nodes(const Entry& entry) {
  if (leaves_.num_nodes() == entry.key.num_passthroughs) return;
  LeafBuffer again;
  const bool is_match = match_call(entry.key, bound_.values(), bound_.size(), again, abstract_, &cache_.rule);
  if (!is_match || !std::equal(leaves_.arguments(), leaves_.arguments() + leaves_.size(), again.arguments())) return;
  leaves_.swap_nodes(again);
}

// ---- A miss.

EntryPtr Call::find_or_create_entry(CallFrame& frame, bool& is_new) {
  TreeSpec spec;
  flatten(spec, leaves_);
  EntryPtr entry = with_static_path(
      spec, [&] { return names(); }, [&] { return cache_.table.find_or_insert(spec, bound_.shape()); });
  try {
    add_own_statics(entry->key, spec, leaves_);
    if (cache_.graph && !entry->objects) mark_objects(*entry);
    if (entry->value) return entry;
    frame.entry = entry.get();
    entry->difference = difference_of(*this, spec);
    is_new = build_target(frame, *entry, leaves_);
  } catch (...) {
    cache_.table.erase_untraced(*entry);
    throw;
  }
  return entry;
}

void Call::flatten(TreeSpec& spec, LeafBuffer& leaves, FlattenOptions options) const {
  options.abstract = abstract_;
  options.callables = cache_.callables;
  if (cache_.rule.any()) {
    options.rule = &cache_.rule;
    options.rule_values = cache_.rule.values(bound_.size(), shape_data(cache_.parameters, bound_));
  }
  flatten_values(spec, leaves, options, bound_.values(), bound_.size(), [&] { return names(); });
}

Ref Call::described() const {
  TreeSpec spec;
  LeafBuffer leaves;
  FlattenOptions options;
  options.hashed = false;
  options.keyed = true;
  flatten(spec, leaves, options);
  return tuple_of({spec_data(spec, names()), leaves.tuple()});
}

Ref Call::history() const {
  if (!cache_.history) {
    const Ref made = python::new_history(jit_.function, cache_.options, exact_unicode(cache_.difference));
    if (!cache_.history) cache_.history = made;  // else another thread was first
  }
  return cache_.history;
}

void Call::read_objects() {
  if (cache_.graph) objects_.read();
}

// ---- The arrays that a call returns unchanged.

bool are_any_deleted(const LeafBuffer& leaves) {
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (is_deleted(leaves[i])) return true;
  }
  return false;
}

void refuse_lost_forwarded(const Entry& entry, const LeafBuffer& leaves) {
  if (entry.donated.empty() || entry.forwarded.empty()) return;
  std::vector<PyObject*> donated;
  donated.reserve(leaves.size());
  for (std::size_t i = 0; i < entry.donated.size() && i < leaves.size(); ++i) {
    if (entry.donated[i] != 0) donated.push_back(leaves[i]);
  }
  std::sort(donated.begin(), donated.end());
  const std::vector<std::uint32_t> forwarded = entry.forwarded;  // asking runs Python, and another thread may trace
  const bool may_lose = std::any_of(forwarded.begin(), forwarded.end(), [&](std::uint32_t i) {
    return i < leaves.size() &&
           (std::binary_search(donated.begin(), donated.end(), leaves[i]) || is_deleted(leaves[i]));
  });
  if (!may_lose) return;
  const Ref target = entry.value;
  python::refuse_lost_arrays(target, leaves.tuple(), bytes_of(entry.donated));
}

// ---- A call while it is under way.

namespace {

thread_local CallFrame* innermost_frame = nullptr;

}  // namespace

CallFrame::CallFrame(const Call& call_) noexcept : call(call_), outer(innermost_frame) { innermost_frame = this; }

CallFrame* CallFrame::innermost() noexcept { return innermost_frame; }

CallFrame& CallFrame::under_way() {
  if (innermost_frame != nullptr) return *innermost_frame;
  raise_error(PyExc_RuntimeError, "partax: no call is under way");
}

CallFrame::~CallFrame() { innermost_frame = outer; }

void explain_failure(const CallFrame& frame) {
  const bool is_explained = PyErr_ExceptionMatches(PyExc_ValueError) != 0 ||
                            PyErr_ExceptionMatches(PyExc_TypeError) != 0 ||
                            PyErr_ExceptionMatches(PyExc_RuntimeError) != 0;
  if (!is_explained) return;
  const Ref original = take_exception();
  restore_exception(python::explain_failure(original, frame.call.cache().options, frame.call.values(),
                                            truth(frame.traced), truth(frame.in_body)));
}

Ref call_body(PyObject* callable, PyObject* values) {
  const Call& call = CallFrame::under_way().call;
  if (PyTuple_GET_SIZE(values) != static_cast<Py_ssize_t>(call.bound().size()))
    raise_error(PyExc_RuntimeError, "partax: the call under way has not so many values");
  return call_with(call.cache().parameters, call.bound(), callable, Items(values).begin());
}

}  // namespace partax
