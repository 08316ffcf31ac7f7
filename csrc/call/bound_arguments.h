// The arguments that are bound to a wrapper, together with those of a call.
#pragma once

#include "base/held_values.h"
#include "call/bound_programs.h"
#include "call/jit_function.h"

namespace partax {

// What `bind` was given, and what calls have found.
struct Bindings {
  Ref jit;
  Ref args, keywords;           // a tuple and a dictionary
  Ref names, named;             // the keys and the values of that, tuples; no names where it is empty
  bool keeps_callable = false;  // a callable tree or a method's instance, of which nothing can change, is bound too
  BoundPrograms programs;

  int traverse(visitproc visit, void* arg) const;
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

}  // namespace partax
