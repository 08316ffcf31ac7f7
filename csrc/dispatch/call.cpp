#include "dispatch/call.h"

#include <algorithm>

#include "base/python_hooks.h"
#include "dispatch/miss.h"
#include "dispatch/output.h"
#include "pytree/match.h"
#include "pytree/spec_data.h"

namespace partax {
namespace {

// Whether a leaf is an array of jax that has been deleted or donated.
bool is_deleted(PyObject* leaf) {
  const bool is_array =
      hooks.jax_array_type.is(Py_TYPE(leaf)) || TypeTable::instance().find(leaf).sort == LeafSort::kJaxArray;
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
void check_forwarded(const Call& call, PyObject* returned, bool liveness_checked) {
  if (!is_output_node(returned)) return;
  const std::shared_ptr<const TraceOutput> output = output_of(returned);
  for (const std::int32_t source : sources_of(returned)) {
    if (source >= 0) continue;
    const std::size_t i = ~static_cast<std::size_t>(source);
    if (!is_deleted(call.leaves()[i])) continue;
    const Program& program = *call.program();
    const Ref target = program.target.jitted;
    const Ref index = number(i);
    python::refuse_lost_arrays(target, call.leaves().tuple(), bytes_of(program.leaves.donated), index,
                               truth(liveness_checked));
    return;
  }
}

// Waits for the program that has returned this; raises what it raises.
void wait_for(PyObject* returned) {
  static Name wait("block_until_ready");
  const Ref results = is_output_node(returned) ? results_of(returned) : tuple_of(&returned, 1);
  for (PyObject* array : Items(results.get())) {
    if (!hooks.jax_array_type.is(Py_TYPE(array))) continue;
    const Away away;
    Ref::checked(PyObject_CallMethodNoArgs(array, wait.get()));
    return;
  }
}

// The static values of a call for which its key has equal ones.
void add_own_statics(const TreeSpec& key, const TreeSpec& spec, LeafBuffer& leaves) {
  for (std::size_t i = 0; i < key.statics.size(); ++i) {
    PyObject* value = spec.statics[i].identity();
    if (value != nullptr && !key.statics[i].is_object(value)) leaves.add_own_static(i, value);
  }
}

// Why the key of a new program is not that of an earlier one of the same form, if that is due to a re-created callable.
std::string difference_of(const Call& call, const TreeSpec& spec) {
  const auto [index, text] = call.cache().table.difference(spec, call.bound().shape());
  return text.empty() ? text : "`" + static_path(spec, call.names(), index) + "`: " + text;
}

}  // namespace

// ---- A hit, in order.

Ref run_call(JitFunction& jit, PyObject* const* args, std::size_t num_args, PyObject* keyword_names, Bindings* bound) {
  Call call(jit, ready_cache(jit), args, num_args, keyword_names);
  CallCache& cache = call.cache();
  call.drop_cached_objects();
  std::shared_ptr<BoundProgram> bound_program;
  Ref returned;  // by the target; the user's result is built from it
  try {
    if (bound != nullptr) bound_program = call.find_bound(bound->programs);
    if (!bound_program) call.find();
    const Program& program = *call.program();
    if (bound != nullptr && !bound_program && !program.leaves.donated.empty() && !cache.graph)
      bound->refuse_donated(call);
    const TargetRun run(call);
    refuse_lost_forwarded(call);
    const Ref callable = program.target.callable;
    if (bound_program) returned = bound_program->run(call.leaves());
    if (!returned) returned = call.run(callable.get());
    if (program.target.waits) wait_for(returned.get());
  } catch (const PythonError&) {
    explain_failure(call);
    throw;
  }
  Ref result = call.finish(returned, !call.progress().traced);
  if (bound != nullptr && !bound_program) bound->add_program(call, returned);
  ++call.program()->calls;
  const CallProgress& progress = call.progress();
  ++(progress.traced || progress.loaded || progress.is_new ? cache.counts.misses : cache.counts.hits);
  return result;
}

void Call::find() {
  if (is_recent()) return;
  if (cache_.graph && !objects_) {
    read_objects();
    if (is_recent()) return;
  }
  const ProgramPtr latest = cache_.table.latest();
  find_or_create();
  if (latest) latest->successor = program_;
}

std::shared_ptr<BoundProgram> Call::find_bound(const BoundPrograms& programs) {
  for (std::size_t i = 0; i < programs.size();) {
    std::shared_ptr<BoundProgram> bound_program = programs[i++];
    ProgramPtr program = bound_program->program(cache_.table);
    if (program && is_latest(program, bound_program.get())) return bound_program;
  }
  return {};
}

// Whether its program is the last one or the one that followed that, which is known without hashing.
bool Call::is_recent() {
  ProgramPtr latest = cache_.table.latest();
  if (!latest) return false;
  if (is_latest(latest)) return true;
  ProgramPtr successor = latest->successor.lock();
  return successor && successor->is_in(cache_.table) && is_latest(successor);
}

// Whether a program of the table is that of this call; then it becomes the most recent one.
bool Call::is_latest(ProgramPtr& program, BoundProgram* bound) {
  if (!program->target.jitted || program->epoch != TypeTable::instance().epoch() || !matches(*program, bound))
    return false;
  if (program->is_in(cache_.table)) cache_.table.touch(*program);
  program_ = std::move(program);
  return true;
}

bool Call::matches(Program& program, BoundProgram* bound) {
  if (!(program.shape == bound_.shape())) return false;
  const KeptValues* const kept_values = bound == nullptr ? nullptr : &bound->kept_values();
  if (!match_call(program.key, bound_.values(), bound_.size(), leaves_, abstract_, &cache_.rule, kept_values))
    return false;
  const bool is_for = bound == nullptr || bound->is_for(leaves_);
  if (is_for && (!cache_.graph || objects_ || has_matched_objects(program))) return true;
  leaves_.clear();
  return false;
}

Ref Call::run(PyObject* callable) {
  const Ref tuple = program_->target.takes_tuple ? leaves_.tuple() : Ref();
  const Away away;
  if (tuple) return Ref::checked(PyObject_CallOneArg(callable, tuple.get()));
  return Ref::checked(
      PyObject_Vectorcall(callable, leaves_.arguments(), leaves_.size() | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
}

Ref Call::finish(const Ref& returned, bool liveness_checked) {
  check_forwarded(*this, returned.get(), liveness_checked);
  keep_nodes();
  Ref result = user_result(returned.get(), leaves_);
  return cache_.graph ? apply_changes(result) : result;
}

// Keeps the nodes of the call that some trace returns unchanged, where its values were read before that trace.
void Call::keep_nodes() {
  const TreeSpec& key = program_->key;
  if (leaves_.num_nodes() == key.num_passthroughs) return;
  LeafBuffer again;
  const bool is_match = match_call(key, bound_.values(), bound_.size(), again, abstract_, &cache_.rule);
  if (!is_match || !std::equal(leaves_.arguments(), leaves_.arguments() + leaves_.size(), again.arguments())) return;
  leaves_.swap_nodes(again);
}

TargetRun::~TargetRun() {
  TargetRun** place = &call_.program()->runs;
  while (*place != this) place = &(*place)->next_;
  *place = next_;
}

Call* TargetRun::call_of(const Program& program) noexcept {
  const unsigned long thread = PyThread_get_thread_ident();
  for (const TargetRun* run = program.runs; run != nullptr; run = run->next_) {
    if (run->thread_ == thread) return &run->call_;
  }
  return nullptr;
}

// ---- A miss.

void Call::find_or_create() {
  TreeSpec spec;
  flatten(spec, leaves_);
  program_ = with_static_path(
      spec, [&] { return names(); }, [&] { return cache_.table.find_or_insert(spec, bound_.shape()); });
  try {
    add_own_statics(program_->key, spec, leaves_);
    if (cache_.graph && !program_->objects) program_->objects = std::make_unique<KeyObjects>(program_->key);
    if (program_->target.jitted) return;
    program_->difference = difference_of(*this, spec);
    const TargetRun run(*this);
    python::cache_miss(view());
  } catch (...) {
    cache_.table.erase_untraced(*std::exchange(program_, nullptr));
    throw;
  }
}

void Call::flatten(TreeSpec& spec, LeafBuffer& leaves, FlattenOptions options) const {
  options.abstract = abstract_;
  options.callables = cache_.callables;
  if (cache_.rule.any()) {
    options.rule = &cache_.rule;
    CallCache::ValueFlags& flags = cache_.flags;
    if (flags.has_rule.size() != bound_.size() || !(flags.shape == bound_.shape())) {
      const Ref shape = call_shape(cache_.parameters, bound_);
      CallCache::ValueFlags new_flags{bound_.shape(), cache_.rule.values(bound_.size(), shape),
                                      cache_.rule.static_values(shape)};
      std::swap(flags, new_flags);  // other threads may have called meanwhile
    }
    options.rule_values = flags.has_rule;
    options.static_values = flags.is_static;
  }
  flatten_values(spec, leaves, options, bound_.values(), bound_.size(), [&] { return names(); });
}

CallDescription& Call::description() {
  if (description_) return *description_;
  auto description = std::make_unique<CallDescription>();
  FlattenOptions options;
  options.hashed = false;
  options.keyed = true;
  flatten(description->spec, description->leaves, options);
  description->data = spec_data(description->spec, names());
  description_ = std::move(description);
  return *description_;
}

Call::~Call() {
  if (progress_.view) Boxed<CallView>::clear(progress_.view.get());
}

const Ref& Call::view() {
  if (!progress_.view) progress_.view = box(std::make_unique<CallView>(CallView{this}));
  return progress_.view;
}

void explain_failure(Call& call) {
  if (!call.program()) return;
  call.cache().table.erase_untraced(*call.program());
  const Ref original = take_exception();
  restore_exception(python::explain_failure(original, call.view()));
}

// ---- The arrays that a call returns unchanged.

void refuse_lost_forwarded(const Call& call) {
  const Program& program = *call.program();
  const LeafBuffer& leaves = call.leaves();
  const LeafUse& use = program.leaves;
  if (use.donated.empty() || use.forwarded.empty()) return;
  std::vector<PyObject*> donated;
  donated.reserve(leaves.size());
  for (std::size_t i = 0; i < use.donated.size() && i < leaves.size(); ++i) {
    if (use.donated[i] != 0) donated.push_back(leaves[i]);
  }
  std::sort(donated.begin(), donated.end());
  const std::vector<std::uint32_t> forwarded = use.forwarded;  // asking runs Python, and another thread may trace
  const bool may_lose = std::any_of(forwarded.begin(), forwarded.end(), [&](std::uint32_t i) {
    return i < leaves.size() &&
           (std::binary_search(donated.begin(), donated.end(), leaves[i]) || is_deleted(leaves[i]));
  });
  if (!may_lose) return;
  const Ref target = program.target.jitted;
  python::refuse_lost_arrays(target, leaves.tuple(), bytes_of(program.leaves.donated), Py_None, Py_False);
}

}  // namespace partax
