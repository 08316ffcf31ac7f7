// What `bind` returns: a wrapper some of whose arguments are bound.
#pragma once

#include "dispatch/bound_program.h"
#include "dispatch/jit_function.h"

namespace partax {

class Call;

using BoundPrograms = std::vector<std::shared_ptr<BoundProgram>>;  // latest first: user code may put others there

// What `bind` was given, and the programs of calls.
struct Bindings {
  Ref jit;
  Ref args, keywords;           // a tuple and a dictionary
  Ref names, keyword_values;    // of the latter, tuples; the names are null where it is empty
  bool keeps_callable = false;  // a callable tree or a method's instance, which cannot change, is bound too
  BoundPrograms programs;
  std::size_t num_failures = 0;  // to make one of these

  // Before a call that donates: raises if it would donate an array that is bound.
  void refuse_donated(Call& call) const;
  // After a call of a program's target: has other calls with arrays of these types run a program of their own.
  void add_program(const Call& call, const Ref& returned);
  int traverse(visitproc visit, void* arg) const {
    return visit_all(visit, arg, jit, args, keywords, keyword_values, programs);
  }
};

void register_bound_function_type(PyObject* module);
Ref make_bound_function(PyObject* jit, PyObject* args, PyObject* kwargs, bool keeps_callable);

}  // namespace partax
