// A wrapper some of whose arguments are bound: its programs, each of which knows what these give to a call, and its
// calls' arguments.
#pragma once

#include <array>

#include "base/held_values.h"
#include "call/entry_table.h"
#include "call/graph_objects.h"
#include "call/jit_function.h"
#include "tree/kept_values.h"

namespace partax {

// For each value of a call whether it is bound.
using IsBound = std::vector<bool>;

// A compiled program that runs on a list of arrays, most of which are the same in each run: past jax's dispatch, where
// all is as it was when that was looked at.
class DirectRun {
 public:
  // Of an entry's target, which has returned this for these leaves; `free` are those that other runs have anew. Null
  // where jax's dispatch has to look at each run.
  static std::shared_ptr<DirectRun> make(const Entry& entry, const LeafBuffer& leaves,
                                         const std::vector<std::uint32_t>& free, const Ref& returned);

  // Whether the free leaves are such, and what jax is set to is what it was.
  bool is_for(const LeafBuffer& leaves, const std::vector<std::uint32_t>& free);
  // What the target would return; null where another thread is at it.
  Ref run(const LeafBuffer& leaves, const std::vector<std::uint32_t>& free);
  int traverse(visitproc visit, void* arg) const {
    return visit_all(visit, arg, free_, expected_, properties_, settings_, context_, execute_, handlers_, arguments_,
                     node_);
  }

 private:
  // What jax tells programs apart by: its properties of an array, or the values of one. It looks at the layout of those
  // that are committed alone.
  enum : std::uint8_t { kAval, kSharding, kCommitted, kLayout, kNumProperties };
  using Signature = std::array<Ref, kNumProperties>;
  // A property of some object's, and the value that it had.
  struct Setting {
    Ref property, of, value;
    int traverse(visitproc visit, void* arg) const { return visit_all(visit, arg, property, of, value); }
  };

  Signature signature(PyObject* array) const;
  bool is_of(Signature& known, PyObject* array) const;
  bool are_expected(const Ref& arrays);

  Signature properties_;
  std::vector<Signature> free_;
  std::vector<Py_ssize_t> places_;  // of each free leaf in the list; -1 where the program does not need it
  Ref context_;                     // jax's, that a trace depends on
  std::vector<Setting> settings_;   // what else a run depends on
  Ref execute_, handlers_;
  Ref arguments_;                    // the list, with None for what is free; null while a run has it
  Ref node_;                         // what the target has returned; null for one array alone
  std::vector<Signature> expected_;  // of its arrays, until the first run has given such
  bool is_other_ = false;            // it has not: this jax has what it takes otherwise
};

// Of one entry.
class BoundProgram {
 public:
  // After a call of the entry with these leaves. `variables` are those among what is bound; the arrays of these that
  // the call has changed are looked at in each call, and so is whether the others are as they were.
  BoundProgram(const EntryPtr& entry, const IsBound& values, const LeafBuffer& leaves,
               const std::vector<HeldVariable>& variables);

  // Null where it is not in this table: it may be gone, as by `clear_cache`, or be that of another cache, which a
  // function that holds other values has.
  EntryPtr entry(const EntryTable& table) const noexcept;
  // Whether its entry is there, and has for what is bound the static part that this one has. May run user code.
  bool is_like(const Entry& entry, const KeptValues& bound) const;
  // What need not be looked at in a match.
  const KeptValues& kept() const noexcept { return kept_; }
  // Completes the leaves of a match by what has been changed in place; false where that is more than by the function.
  bool read(LeafBuffer& leaves) const;
  // What the entry's target would return; null where it has to be called.
  Ref run(const LeafBuffer& leaves);
  // After it has been called: so that `run` can do it next time, if it may.
  void learn(const Entry& entry, const LeafBuffer& leaves, const Ref& returned);
  int traverse(visitproc visit, void* arg) const { return visit_all(visit, arg, variables_, runs_, kept_); }

 private:
  std::weak_ptr<Entry> entry_;
  KeptValues kept_;
  std::vector<HeldVariable> variables_;  // bound ones; without its value where a call changes it
  std::vector<std::uint32_t> free_;      // the leaves that another call may have anew
  std::vector<std::shared_ptr<DirectRun>> runs_;
  std::size_t failures_ = 0;  // to make one of these
};

// Of one bound wrapper, the latest first.
class BoundPrograms {
 public:
  // User code may put others there.
  const std::vector<std::shared_ptr<BoundProgram>>& all() const noexcept { return programs_; }
  // After a call of an entry that had none: one for the next call. `graph` is null but for a function that may change
  // what is bound; then there may be none yet.
  std::shared_ptr<BoundProgram> add(const EntryPtr& entry, const IsBound& values, const LeafBuffer& leaves,
                                    const GraphObjects* graph);
  // After a call of an entry: drops those for which what is bound had another static part.
  void drop_unlike(const Entry& entry, const IsBound& values);
  int traverse(visitproc visit, void* arg) const { return visit_all(visit, arg, programs_); }

 private:
  bool have_stayed(const std::vector<HeldVariable>& variables);

  std::vector<std::shared_ptr<BoundProgram>> programs_;
  std::vector<PyObject*> last_;  // the addresses of what the variables held after the last call that was learnt from
};

// Before a call that donates: raises if it would give away an array that is bound.
void refuse_donated(const Entry& entry, const IsBound& values);

// What `bind` was given, and what calls have found.
struct Bindings {
  Ref jit;
  Ref args, keywords;           // a tuple and a dictionary
  Ref names, named;             // the keys and the values of that, tuples; no names where it is empty
  bool keeps_callable = false;  // a callable tree or a method's instance, of which nothing can change, is bound too
  BoundPrograms programs;

  int traverse(visitproc visit, void* arg) const {
    return visit_all(visit, arg, jit, args, keywords, names, named, programs);
  }
};

// All arguments of one call, in the order of a vectorcall: first what is bound.
class BoundArguments {
 public:
  // The caller must hold what it passes.
  BoundArguments(Bindings& bindings, PyObject* const* args, std::size_t num_args, PyObject* keyword_names);

  PyObject* const* data() const noexcept { return data_; }
  std::size_t num_positional() const noexcept { return num_positional_; }
  PyObject* names() const noexcept { return names_.get(); }
  BoundPrograms& programs() const noexcept { return bindings_.programs; }
  // For each value of the call whether it is bound.
  IsBound are_bound(const JitFunction& jit, const Parameters& parameters) const;

 private:
  Bindings& bindings_;
  std::size_t num_positional_, size_;
  HeldValues all_;
  PyObject* const* data_;
  Ref names_;
};

// What `bind` returns, of a wrapper, a tuple of arguments and a dictionary of keywords; its type is added to the
// module.
void register_bound_function_type(PyObject* module);
Ref make_bound_function(PyObject* jit, PyObject* args, PyObject* kwargs, bool keeps_callable);

}  // namespace partax
