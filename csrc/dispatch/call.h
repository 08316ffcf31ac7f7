// One call of a wrapper: its arguments bound, matched with a program, run, and its result made.
#pragma once

#include "dispatch/bound_function.h"
#include "dispatch/call_cache.h"
#include "pytree/leaf_buffer.h"

namespace partax {

// What Python is asked to do for a call leaves this in it.
struct CallProgress {
  Ref view;    // what Python has of the call, a CallView
  Ref record;  // of the trace that this call has made or is compiled for, if any
  Ref stored;  // the `Programs` that it has asked for its program, before it traced
  bool traced = false;
  bool in_body = false;  // of its trace; it stays so where the body has failed
  bool loaded = false;   // it has a stored program
  bool is_new = false;   // it has built the target of its program

  int traverse(visitproc visit, void* arg) const { return visit_all(visit, arg, record, stored); }
};

// The values of a call flattened with the keys of their nodes, for messages and for a trace.
struct CallDescription {
  TreeSpec spec;
  LeafBuffer leaves;
  Ref data;  // of the spec, as `spec_data` gives it
  int traverse(visitproc visit, void* arg) const { return visit_all(visit, arg, spec, leaves, data); }
};

class Call {
 public:
  // The caller must hold the wrapper and the arguments. `cache` is the wrapper's: see ready_cache.
  Call(const JitFunction& jit, Ref cache, PyObject* const* args, std::size_t num_args, PyObject* keyword_names,
       bool abstract = false)
      : jit_(jit),
        cache_object_(std::move(cache)),
        cache_(cache_in(cache_object_.get())),
        abstract_(abstract),
        bound_(cache_.parameters, jit.callable_is_tree ? jit.function : nullptr, jit.self, args, num_args,
               keyword_names) {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call();  // clears what Python has of it

  const JitFunction& jit() const noexcept { return jit_; }
  CallCache& cache() const noexcept { return cache_; }
  const Ref& cache_object() const noexcept { return cache_object_; }
  const BoundCall& bound() const noexcept { return bound_; }
  // The objects that the function may change, a list, if Python has read them.
  const Ref& objects() const noexcept { return objects_; }
  // At its end: it has set values of Variables at most, and needed no Python for that.
  bool has_changed_values_alone() const noexcept { return changed_values_alone_; }
  const LeafBuffer& leaves() const noexcept { return leaves_; }
  // Null until it is known.
  const ProgramPtr& program() const noexcept { return program_; }
  CallProgress& progress() noexcept { return progress_; }
  // What Python has of it, a CallView: made when it is asked for.
  const Ref& view();
  // Its values, and the root of each one's path in messages: tuples.
  Ref values() const { return tuple_of(bound_.values(), bound_.size()); }
  Ref names() const { return value_names(cache_.parameters, bound_); }

  // Flattens the values by the cache's options and these; raises PythonError.
  void flatten(TreeSpec& spec, LeafBuffer& leaves, FlattenOptions options = {}) const;
  CallDescription& description();
  // (its data, its leaves).
  Ref described() { return tuple_of({description().data, description().leaves.tuple()}); }
  // Drops the objects that nnx.cached_partial left for this call, which reads its own; nnx raises if they stay.
  void drop_cached_objects() const;
  // Has Python read the objects that the function may change, if it may, and replace the values by what it makes of
  // them.
  void read_objects();
  // Whether a program is that of this call; then `leaves` are its arrays, else empty. What `bound` (may be null) keeps
  // of the arguments is not looked at.
  bool matches(Program& program, BoundProgram* bound = nullptr);
  void set_program(ProgramPtr program) noexcept { program_ = std::move(program); }
  // Finds its program among those used last or by its key; Python builds the target of a new one. Threads that miss at
  // once get one program, and one function for jax to trace.
  void find();
  // Finds the first one of these that is for this call, or null.
  std::shared_ptr<BoundProgram> find_bound(const BoundPrograms& programs);
  // Calls the program's target, or what jax has compiled for it, which the caller must hold.
  Ref run(PyObject* callable);
  // The user's result from what that returned. `liveness_checked`: the forwarded arrays had been looked at before.
  Ref finish(const Ref& returned, bool liveness_checked);

  int traverse(visitproc visit, void* arg) const {
    return visit_all(visit, arg, cache_object_, objects_, bound_, leaves_, progress_, description_);
  }

 private:
  bool is_recent();
  bool is_latest(ProgramPtr& program, BoundProgram* bound = nullptr);
  void find_or_create();
  void keep_nodes();
  Ref ask_graph(Name& method, PyObject* outcome = nullptr);
  // Whether values that match the program's key need no Python to read their objects: they are the nodes of the key,
  // and each is in one place.
  bool has_matched_objects(const Program& program) const;
  // Makes the changes in the outcome of a trace, all or none, and returns the result of the function. Records in the
  // program whether others with the same key need no Python.
  Ref apply_changes(const Ref& outcome);

  const JitFunction& jit_;
  Ref cache_object_;
  CallCache& cache_;
  bool abstract_;
  BoundCall bound_;
  Ref objects_;
  bool changed_values_alone_ = false;
  LeafBuffer leaves_;
  ProgramPtr program_;
  std::unique_ptr<CallDescription> description_;
  CallProgress progress_;
};

// While it exists, this thread runs the target of a call's program: what jax traces then is for the call. The program
// has a list of these.
class TargetRun {
 public:
  explicit TargetRun(Call& call) noexcept
      : call_(call), thread_(PyThread_get_thread_ident()), next_(std::exchange(call.program()->runs, this)) {}
  TargetRun(const TargetRun&) = delete;
  TargetRun& operator=(const TargetRun&) = delete;
  ~TargetRun();
  // The call for which this thread runs a program, the innermost one; or null.
  static Call* call_of(const Program& program) noexcept;

 private:
  Call& call_;
  unsigned long thread_;
  TargetRun* next_;
};

// ---- The arrays that a call returns unchanged. They do not go through jax, so their liveness is checked here.

// Before the program runs, where it donates: if an array that the call may give back is deleted already, or is donated
// as another argument, raises jax's error where this very call would do so; nothing has been donated. It may trace.
void refuse_lost_forwarded(const Call& call);

// Calls the wrapper, which the caller must hold as it must the arguments. A hit runs no Python function of partax and
// allocates nothing per leaf. `bound` (may be null) has those of the arguments that are bound.
Ref run_call(JitFunction& jit, PyObject* const* args, std::size_t num_args, PyObject* keyword_names,
             Bindings* bound = nullptr);

// After an exception: drops the call's program if it has never traced or run. A target may fail on an argument before
// it traces; then Python may replace the exception that is set by one with the path of the argument.
void explain_failure(Call& call);

}  // namespace partax
