// What a callable holds: closure cells, defaults, attributes, what it is a partial or a wrapper of.
#pragma once

#include "base/error_path.h"
#include "base/hooks.h"
#include "base/owned_reads.h"

namespace partax {

// The types of values that are taken apart, beside Python's own.
struct TakenApart {
  Kept partial;        // functools.partial
  Kept jitted;         // what jax.jit returns
  Kept treedef;        // jax.tree_util.PyTreeDef
  Kept registrations;  // abc.get_cache_token, which counts what was registered with abstract classes
  Kept settings;       // what each trace can read of jax's configuration: one more root of all guards
  Kept wrapper;        // what filter_jit returns, and what such a one wraps: known to whoever defines it
  Ref (*wrapped)(PyObject* wrapper) = nullptr;
};

inline TakenApart all_taken_apart;
inline TakenApart& taken_apart() noexcept { return all_taken_apart; }

enum class CallableSort : std::uint8_t {
  kNone,
  kFunction,
  kPartial,  // functools.partial, and subclasses without a == or hash of their own
  kJitted,   // jax.jit
  kWrapper,  // filter_jit
};

CallableSort callable_sort(PyObject* value) noexcept;

// Of a functools.partial: its function, its arguments, its keywords.
Ref partial_part(PyObject* partial, std::size_t i);

// Visits what a callable holds, in one order; an empty reference where there is nothing. Of a function: its cells,
// defaults, keyword defaults and attributes. Of a jax.jit nothing: it does not look again itself.
template <typename Visit>
void each_held(PyObject* callable, Visit&& visit) {
  const auto filled = [](const Ref& dict) { return dict && PyDict_GET_SIZE(dict.get()) > 0 ? dict : Ref(); };
  const CallableSort sort = callable_sort(callable);
  if (sort == CallableSort::kFunction) {
    auto* function = reinterpret_cast<PyFunctionObject*>(callable);
    const Py_ssize_t cells = function->func_closure == nullptr ? 0 : PyTuple_GET_SIZE(function->func_closure);
    for (Py_ssize_t i = 0; i < cells; ++i) {
      visit(Ref::steal(PyCell_Get(PyTuple_GET_ITEM(function->func_closure, i))));
    }
    visit(part_at(callable, function->func_defaults));
    visit(part_at(callable, function->func_kwdefaults));
    visit(filled(part_at(callable, function->func_dict)));
  } else if (sort == CallableSort::kPartial) {
    for (std::size_t i = 0; i < 3; ++i) visit(partial_part(callable, i));
    visit(filled(dict_of(callable)));  // asking for __dict__ would make one
  } else if (sort == CallableSort::kWrapper) {
    visit(taken_apart().wrapped(callable));
  }
}

// The same code, also where it was compiled twice, whatever the file is called.
bool is_same_code(PyObject* left, PyObject* right);

// Functions that changed what they hold while they were traced: known by identity alone from then on.
void mark_self_changing(PyObject* callable);
bool is_self_changing(PyObject* callable) noexcept;

}  // namespace partax
