// A wrapper some of whose arguments are bound: its programs, and the arguments of its calls.
#pragma once

#include <array>

#include "base/held_values.h"
#include "call/graph_objects.h"
#include "call/jit_function.h"
#include "call/program_table.h"
#include "tree/kept_values.h"

namespace partax {

// For each value of a call whether it is bound.
using IsBound = std::vector<bool>;

// A run of a compiled program past jax's dispatch: on a list of arrays, most of which are the same in each run.
class DirectRun {
 public:
  // After a call of a program's target with these leaves. Other runs have other arrays for the leaves `free`; those of
  // the first `num_changing` are dropped after each run, the rest are most often the same again. Null where jax's
  // dispatch has to look at each run.
  static std::shared_ptr<DirectRun> make(const Program& program, const LeafBuffer& leaves,
                                         const std::vector<std::uint32_t>& free, std::size_t num_changing,
                                         const Ref& returned);

  // Whether the free leaves have the types that they had, and jax its settings.
  bool is_for(const LeafBuffer& leaves, const std::vector<std::uint32_t>& free);
  // What the target would return; null where another thread is at it.
  Ref run(const LeafBuffer& leaves, const std::vector<std::uint32_t>& free);
  int traverse(visitproc visit, void* arg) const {
    return visit_all(visit, arg, free_, expected_, properties_, settings_, read_context_, context_, execute_, handlers_,
                     arguments_, node_);
  }

 private:
  // What jax tells programs apart by: its properties of an array, or the values of one. It looks at the layout of those
  // that are committed alone.
  enum : std::uint8_t { kAval, kSharding, kCommitted, kLayout, kNumProperties };
  using Signature = std::array<Ref, kNumProperties>;
  // A property of an object, and the value that it had.
  struct Setting {
    Ref property, object, value;
    int traverse(visitproc visit, void* arg) const { return visit_all(visit, arg, property, object, value); }
  };

  Signature signature(PyObject* array) const;
  bool has_signature(PyObject* array, Signature& last_signature) const;
  bool are_expected(const Ref& arrays);
  // Whether the list has this array for a free leaf, by the index of that.
  bool has_in_list(PyObject* list, std::size_t i, PyObject* array) const noexcept {
    return i >= num_changing_ && list != nullptr && places_[i] >= 0 && PyList_GET_ITEM(list, places_[i]) == array;
  }

  Signature properties_;
  std::vector<Signature> free_;
  std::vector<Py_ssize_t> places_;  // of each free leaf in the list; -1 where the program does not need it
  std::size_t num_changing_ = 0;
  Ref read_context_, context_;     // jax's configuration that a trace depends on
  std::vector<Setting> settings_;  // what else a run depends on
  Ref execute_, handlers_;
  Ref arguments_;                    // the list, with None for what changes; null while a run has it
  Ref node_;                         // what the target has returned; null for one array alone
  std::vector<Signature> expected_;  // of its arrays, until the first run has given such
  bool is_unusable_ = false;         // that run gave other arrays: this jax needs another call
};

// A Variable in what is bound, with the one array that it holds, whose value each call reads.
struct BoundVariable {
  Ref object;
  std::size_t leaf;  // of the call
  bool is_set;       // by the call
  int traverse(visitproc visit, void* arg) const { return visit_all(visit, arg, object); }
};

// Of one program: what the bound values give to a match, and its runs past jax's dispatch.
class BoundProgram {
 public:
  // After a call of the program with these leaves. Null where a Variable that is bound holds another thing than one
  // array of jax's, which could change in place: each call is an ordinary one then.
  static std::shared_ptr<BoundProgram> make(const ProgramPtr& program, const IsBound& values, const LeafBuffer& leaves);
  BoundProgram(const ProgramPtr& program, const IsBound& values, const LeafBuffer& leaves,
               std::vector<BoundVariable> variables);

  // Null where it is not in this table: it may be gone, as by `clear_cache`, or be that of another cache, which a
  // function that holds other values has.
  ProgramPtr program(const ProgramTable& table) const noexcept;
  // What need not be looked at in a match.
  const KeptValues& kept_values() const noexcept { return kept_; }
  // Completes the leaves of a match by the values of Variables; false if one is not an array.
  bool read_variables(LeafBuffer& leaves) const;
  // What the program's target would return; null where it has to be called.
  Ref run(const LeafBuffer& leaves);
  // After a call of the program's target: has others with free arrays of these types run past it, if they may.
  void add_run(const Program& program, const LeafBuffer& leaves, const Ref& returned);
  int traverse(visitproc visit, void* arg) const { return visit_all(visit, arg, variables_, runs_, kept_); }

 private:
  std::weak_ptr<Program> program_;
  KeptValues kept_;
  std::vector<BoundVariable> variables_;
  // The leaves that differ from call to call: first those that are free or set by the call, then the other Variables.
  std::vector<std::uint32_t> free_;
  std::size_t num_changing_ = 0;                  // of these the first ones
  std::vector<std::shared_ptr<DirectRun>> runs_;  // latest first
  std::size_t attempts_ = 0;                      // to make one of these
};

// Of one bound wrapper, latest first: user code may put others there.
using BoundPrograms = std::vector<std::shared_ptr<BoundProgram>>;

class Call;
// Before a call that donates: raises if it would donate an array that is bound.
void refuse_donated(Call& call, const IsBound& values);

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
