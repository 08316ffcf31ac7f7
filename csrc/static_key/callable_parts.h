// Which static values are callables, and how a key knows one: by identity, and by what its code can read.
#pragma once

#include "base/error_path.h"
#include "base/hooks.h"
#include "base/owned_reads.h"
#include "static_key/callable_content.h"

namespace partax {

enum class CallableSort : std::uint8_t {
  kNone,
  kFunction,
  kMethod,
  kPartial,  // functools.partial, and subclasses without a == or hash of their own
  kJitted,   // jax.jit
  kWrapper,  // filter_jit
  kOther,    // an instance with __call__ and without a == or hash of its own
};

CallableSort callable_sort(PyObject* value) noexcept;

Ref weakly(PyObject* object, PyObject* on_death);

// A callable by identity, held weakly; a bound method by its function and object, as each access makes another one.
class CallableIdentity {
 public:
  CallableIdentity(PyObject* callable, PyObject* on_death);
  bool is(PyObject* callable) const noexcept;
  Ref get() const;
  template <typename Visit>
  void each_weakref(Visit&& visit) const {
    for (const Ref* part : {&object_, &function_}) {
      if (*part && PyWeakref_CheckRef(part->get())) visit(part->get());
    }
  }
  int traverse(visitproc visit, void* arg) const { return visit_all(visit, arg, object_, function_); }

 private:
  Ref object_;    // a weak reference, or the object itself if it supports none; of a method to its __self__
  Ref function_;  // of a method
};

// A callable in a key. A re-created one is the same if its code reads the same as what the proof has.
struct CallableRecord {
  // `proves`: re-created callables may be the same; else identity decides.
  CallableRecord(PyObject* callable, PyObject* on_death, bool proves);
  bool is_original(PyObject* callable) const noexcept { return identities.front().is(callable); }
  bool is_known(PyObject* callable) const noexcept {
    for (const CallableIdentity& identity : identities) {
      if (identity.is(callable)) return true;
    }
    return false;
  }
  bool is_alive() const;
  // A re-created one that is proven is identified from then on.
  bool accepts(PyObject* callable);
  std::string difference(PyObject* callable) const;
  // Before another trace: if what an identified callable reads has changed, re-created ones do not get its programs.
  void check_still_proven();
  // From now on re-created ones do not get its programs, for this reason.
  void refuse_others(const char* reason);
  int traverse(visitproc visit, void* arg) const { return visit_all(visit, arg, proof, content, identities); }

  std::vector<CallableIdentity> identities;  // the original, then the re-created ones, latest first
  Ref proof;                                 // partax._functions.proof.Proof, or null
  CallableContent content;                   // a shorter proof, if there is one
  bool is_provable = false;
  std::size_t num_array_bytes = 0;  // of the arrays that it can read
};

}  // namespace partax
