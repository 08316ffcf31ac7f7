// What a callable consists of, as far as a traced program can tell two of them apart.
#pragma once

#include "python_api.h"

namespace partax {

enum class CallableSort : std::uint8_t {
  kNone,
  kFunction,
  kPartial,  // functools.partial and its subclasses
  kJitted,   // jax.jit
  kWrapper,  // filter_jit
};

CallableSort callable_sort(PyObject* value) noexcept;

// "func", "args", "keywords"
PyObject* const* partial_names() noexcept;
// Makes them; before anything else is asked of callables.
void intern_partial_names();

// The values that a callable holds, which are compared by the rules of static values. Null: absent, or an empty cell.
// Functions: closure cells, defaults, keyword defaults, attributes; name, qualified name, module, annotations.
class CallableParts {
 public:
  CallableParts(PyObject* callable, CallableSort sort);

  std::size_t size() const noexcept { return parts_.size(); }
  const Ref& operator[](std::size_t i) const noexcept { return parts_[i]; }
  // How many of the first parts are closure cells.
  std::size_t num_cells() const noexcept { return num_cells_; }
  // How many of the first parts may change while the callable stays the same object.
  std::size_t num_state() const noexcept { return num_state_; }
  // False where the parts cannot be read: identity decides.
  bool known() const noexcept { return known_; }

 private:
  void function(PyObject* callable);
#if PY_VERSION_HEX >= 0x030E0000
  void annotate(const Ref& annotate, PyObject* globals, Ref& annotations);
#endif
  void partial(PyObject* callable);
  void jitted(PyObject* callable);
  void wrapper(PyObject* callable);

  std::vector<Ref> parts_;
  std::size_t num_cells_ = 0;
  std::size_t num_state_ = 0;
  bool known_ = true;
};

// Asks `same(i, part)` about each part of a function that may change, in the order of CallableParts. Allocates nothing.
template <typename Same>
bool all_state(PyObject* function, Same&& same) {
  const auto* object = reinterpret_cast<PyFunctionObject*>(function);
  const Py_ssize_t cells = object->func_closure == nullptr ? 0 : PyTuple_GET_SIZE(object->func_closure);
  for (Py_ssize_t i = 0; i < cells; ++i) {
    PyObject* cell = PyTuple_GET_ITEM(object->func_closure, i);
    if (!same(static_cast<std::size_t>(i), reinterpret_cast<PyCellObject*>(cell)->ob_ref)) return false;
  }
  const auto at = static_cast<std::size_t>(cells);
  PyObject* dict = object->func_dict;
  return same(at, object->func_defaults) && same(at + 1, object->func_kwdefaults) &&
         same(at + 2, dict == nullptr || PyDict_GET_SIZE(dict) == 0 ? nullptr : dict);
}

// The same for a partial.
template <typename Same>
bool all_partial_state(PyObject* partial, Same&& same) {
  for (std::size_t i = 0; i < 3; ++i) {
    const Ref part = Ref::steal(PyObject_GetAttr(partial, partial_names()[i]));
    if (!part) forgive();
    if (!part || !same(i, part.get())) return false;
  }
  PyObject** dict = _PyObject_GetDictPtr(partial);  // asking for __dict__ would make one
  const bool empty = dict == nullptr || *dict == nullptr || PyDict_GET_SIZE(*dict) == 0;
  return same(std::size_t{3}, empty ? nullptr : *dict);
}

// What a filter_jit wrapper wraps.
Ref wrapped_callable(PyObject* wrapper);

// True if a closure cell has no value yet, as that of a function which calls itself while it is being decorated.
bool has_empty_cell(PyObject* function) noexcept;

// What a key holds of a function beside its parts.
struct FunctionIdentity {
  Ref code;
  PyObject* globals = nullptr;  // an address only: that dictionary while `anchor` lives
  Ref anchor;                   // a weak reference to something that keeps the globals alive, or empty

  static FunctionIdentity of(PyObject* function);
  // The same code, also where it was compiled twice.
  bool has_code_of(PyObject* function) const;
  // The same globals dictionary and, as for most functions, the interpreter's builtins.
  bool has_globals_of(PyObject* function) const noexcept;
};

// For each closure cell of a function, whether it is the function's own record and no input: a variable that it or code
// inside it assigns, as a counter is, or a container that they only add to, as a log is.
std::vector<bool> own_records(PyObject* function);

// Callables that changed while they were traced are known by identity alone from then on.
void mark_unsteady(PyObject* callable);
bool is_unsteady(PyObject* callable) noexcept;
// Whether it seems to have been another thread that changed a callable while it was traced: it is a function whose code
// shows nothing by which it could change what it holds. But not if that happens again and again.
bool changed_by_others(PyObject* callable);
// A function has been traced, and is as it was.
void note_unchanged(PyObject* callable) noexcept;
// Callables that note something of their own while they are traced, as a count of their traces: none made anew is
// alike.
void mark_noting(PyObject* callable);
bool is_noting(PyObject* callable) noexcept;

}  // namespace partax
