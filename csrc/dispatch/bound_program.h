// A compiled program that calls with bound arguments run past jax's dispatch, on a list of arrays.
#pragma once

#include "dispatch/program_table.h"
#include "pytree/kept_values.h"

namespace partax {

class BoundProgram {
 public:
  // After a call of a program's target. Null where each call is an ordinary one: where jax's dispatch does more than to
  // run a program, or where something in the bound values may change, except the one array that a Variable holds.
  static std::shared_ptr<BoundProgram> make(const ProgramPtr& program, KeptValues kept_values, const Ref& returned);
  BoundProgram(const ProgramPtr& program, KeptValues kept_values)
      : program_(program), kept_values_(std::move(kept_values)) {}

  // Null where it is not in this table, as after `clear_cache`, or for a function that holds other values.
  ProgramPtr program(const ProgramTable& table) const noexcept {
    ProgramPtr program = program_.lock();
    return program && program->is_in(table) ? program : ProgramPtr();
  }
  const KeptValues& kept_values() const noexcept { return kept_values_; }
  // Completes the leaves of a match by the values of Variables. Whether all have their types, and jax its settings.
  bool is_for(LeafBuffer& leaves);
  // What the target would return; null where that has to be called: this fails, or another thread runs it.
  Ref run(const LeafBuffer& leaves);
  int traverse(visitproc visit, void* arg) const {
    return visit_all(visit, arg, kept_values_.leaves, free_, plan_, node_);
  }

 private:
  struct FreeLeaf {
    std::size_t leaf;
    Ref variable;      // in what is bound, whose value each call reads; null for a leaf that is free
    const Slot* slot;  // where it has that
    bool is_dropped;   // after each run; a Variable that the call does not set most often has the same value again
    Py_ssize_t place;  // in the list; -1 where the program does not need it
    Ref signature;     // what jax tells programs apart by: the values of some properties of an array, a list
    int traverse(visitproc visit, void* arg) const { return visit_all(visit, arg, variable, signature); }
  };

  bool find_free_leaves(const Program& program);
  PyObject* part(std::uint8_t field) const noexcept { return PyTuple_GET_ITEM(plan_.get(), field); }
  bool has_signature(PyObject* array, PyObject* signature) const;

  std::weak_ptr<Program> program_;
  KeptValues kept_values_;
  std::vector<FreeLeaf> free_;
  Ref plan_;  // a partax._jax.programs.DirectRun
  Ref node_;  // what the target has returned; null for one array alone
  bool is_running_ = false;
};

}  // namespace partax
