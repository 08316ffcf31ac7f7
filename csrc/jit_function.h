// The wrapper that filter_jit returns: a vectorcall type that runs the stages of a call in order.
#pragma once

#include <memory>

#include "call_cache.h"
#include "call_signature.h"
#include "leaf_buffer.h"
#include "python_api.h"

namespace partax {

// What all wrappers of equal callables with equal options share.
struct CallCache {
  CallCache(Parameters named, Ref of, std::size_t max_size)
      : parameters(std::move(named)), options(std::move(of)), table(max_size) {}

  Parameters parameters;
  Ref options;
  StaticTable table;
  std::size_t hits = 0;
  std::size_t misses = 0;
};

struct JitFunction {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject* function;  // the wrapped callable
  PyObject* self;      // the bound instance, or null
  PyObject* options;
  PyObject* cache;  // a CallCacheObject, or null before the first use
  PyObject* dict;
  PyObject* weakrefs;
  bool callable_is_tree;  // the callable has children or arrays, so it is matched with the arguments
};

// A call under way, innermost first; where a trace finds the user's arguments.
struct CallFrame {
  CallFrame(JitFunction& jit, CallCache& cache, const BoundCall& call, bool abstract) noexcept;
  ~CallFrame();
  CallFrame(const CallFrame&) = delete;
  CallFrame& operator=(const CallFrame&) = delete;

  JitFunction& jit;
  CallCache& cache;
  const BoundCall& call;
  Entry* entry = nullptr;
  CallFrame* outer;
  Ref on_exit;  // called without arguments when the call ends
  bool abstract;
  bool traced = false;
};

// Creates the Python types; returns (wrapper type, flatten, unflatten) for jax's registry.
Ref register_jit_function_types();
// A wrapper of `function`; finds the cache of an equal earlier one.
Ref make_jit_function(PyObject* function, PyObject* options);
bool is_jit_function(PyObject* object) noexcept;
void clear_shared_caches() noexcept;

// The body of a target under tracing: rebuilds the user's arguments from tracers, calls the user's function, and
// returns its arrays as an output node.
Ref run_trace(PyObject* const* leaves, std::size_t count);
// Has `callback` called when the innermost call ends; false if it has such a callback already.
bool on_call_exit(PyObject* callback);

// The arguments of a call that is run step by step (lower, trace, eval_shape, compiled programs).
class PreparedCall {
 public:
  PreparedCall(PyObject* jit, PyObject* args, PyObject* kwargs, bool abstract);

  // The same program's call with other arguments, or null if their static part differs.
  std::unique_ptr<PreparedCall> rebind(PyObject* args, PyObject* kwargs) const;
  // [(path, value)] of every static value of this call, or of one with other arguments.
  Ref static_items() const;
  Ref static_items_of(PyObject* args, PyObject* kwargs) const;
  // Lets go of the arguments; only `rebind` and `static_items_of` may follow.
  void detach() noexcept;

  PyObject* leaves() const noexcept { return leaf_tuple_.get(); }
  PyObject* target() const noexcept { return entry_->value.get(); }
  bool same_key(const PreparedCall& other) const noexcept { return entry_ == other.entry_; }
  // Calls `callable(target, *leaves)` as part of this call and rebuilds the user's result if it returns an output node.
  Ref run(PyObject* callable) const;
  // Rebuilds a result that consists of one output node.
  Ref result(PyObject* returned) const;

 private:
  PreparedCall(PyObject* jit, bool abstract);
  void bind(PyObject* args, PyObject* kwargs);

  Ref jit_;
  std::vector<Ref> arguments_;
  Ref keyword_names_;
  std::vector<PyObject*> borrowed_;
  std::unique_ptr<BoundCall> call_;
  std::unique_ptr<LeafBuffer> leaves_;
  EntryPtr entry_;
  Ref leaf_tuple_;
  std::vector<std::string> names_;
  bool abstract_;
};

}  // namespace partax
