// The parameters of a wrapped function, and the one form that every way of passing the same arguments is brought into.
#pragma once

#include "base/python_api.h"

namespace partax {

// Which arguments a call gave: with the values, all that tells one way of calling from another.
struct CallShape {
  std::vector<std::uint32_t> left_out;  // the parameters without a value, in order; most often none
  std::uint32_t num_extra = 0;          // values taken by *args
  std::vector<Ref> keywords;  // names of the values taken by **kwargs, in an order that does not depend on the call
  bool operator==(const CallShape& other) const;
  std::size_t hash() const;
};

// Parameters by which a callable is really called. Where they are unknown it takes everything by *args
// and **kwargs. What these take has the names that the callable shows (`functools.wraps`), if they are others.
struct Parameters {
  std::string function;    // its name, for messages
  std::vector<Ref> names;  // interned; positional ones first, then keyword-only
  std::vector<bool> optional;
  std::size_t num_positional_only = 0;
  std::size_t num_positional = 0;
  bool var_positional = true;
  bool var_keyword = true;
  std::vector<Ref> shown_named;  // the values in **kwargs that the callable shows by name, in order
  Ref description;               // all of it as Python has it: partax._jit.options.CallParameters
};

// The arguments of one call in parameter order, without defaults, which are the function's own: [callable], given
// parameters, *args, **kwargs by name.
class BoundCall {
 public:
  // `first` (may be null) is the wrapped callable as a traced tree, `self` (may be null) the bound instance. The caller
  // must hold all.
  BoundCall(const Parameters& parameters, PyObject* first, PyObject* self, PyObject* const* args, std::size_t num_args,
            PyObject* keyword_names);
  BoundCall(const BoundCall&) = delete;
  BoundCall& operator=(const BoundCall&) = delete;

  // Replaces the values, by a tuple of as many.
  void replace_values(const Ref& values);

  PyObject* const* values() const noexcept { return values_; }
  std::size_t size() const noexcept { return size_; }
  const CallShape& shape() const noexcept { return shape_; }
  bool has_callable() const noexcept { return has_callable_; }
  int traverse(visitproc visit, void* arg) const { return visit_all(visit, arg, owned_); }

 private:
  void bind(const Parameters& parameters, PyObject* first, PyObject* self, PyObject* const* args, std::size_t num_args,
            PyObject* keyword_names);

  std::vector<PyObject*> bound_;
  Ref owned_;  // by `replace_values`
  PyObject* const* values_;
  std::size_t size_;
  CallShape shape_;
  bool has_callable_ = false;
};

// Which values a call has: a partax._jit.options.CallShape.
Ref call_shape(const Parameters& parameters, const BoundCall& call);
// The root of each value's path in messages, a tuple: `model`, `args[0]`, `kwargs` by their own names.
Ref value_names(const Parameters& parameters, const BoundCall& call);

}  // namespace partax
