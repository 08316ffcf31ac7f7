// Type-exact equality and hash of one static value: equal only if a traced program cannot tell them apart.
#pragma once

#include <memory>

#include "callable_value.h"
#include "python_api.h"
#include "static_form.h"
#include "tree_path.h"

namespace partax {

// How callables are compared. By structure, those that mean the same are equal; but identity decides for what cannot be
// proven equal: one that holds an array or an empty cell, or that changed while it was traced. A *wrapped* callable is
// known without the defaults of its parameters, which are arguments of each call.
enum class Callables : std::uint8_t { kByStructure, kByIdentity, kWrapped };

// Hash that agrees with StaticValue::equals. Raises WalkError for values that cannot be static.
std::size_t static_hash(PyObject* value, Unhashable unhashable, Callables callables = Callables::kByStructure);

// A static value as part of a spec. *Loose* holds the object itself, for a spec that lives as long as one call.
// *Sealed* holds what a key may keep: a snapshot of mutable containers and of what callables hold, a weak reference to
// whatever is compared by identity, and the object itself otherwise.
class StaticValue {
 public:
  StaticValue() noexcept = default;  // an absent field
  static StaticValue loose(Ref value) noexcept;
  // `on_death` (may be null) is the callback of the weak references that are made.
  StaticValue sealed(PyObject* on_death, Callables callables = Callables::kByStructure) const;
  // Like sealed, but keeps a strong reference unless `weakly`.
  StaticValue handed_out(bool weakly) const;

  // Takes a snapshot of mutable built-in containers, so that nobody else can change the value.
  void own();

  // True if `other` is the same static value. May run user code; raises WalkError.
  bool equals(PyObject* other) const;
  bool equals(const StaticValue& other) const;
  // True if `other` is surely this value, found without user code and without an allocation.
  bool is_plainly(PyObject* other) const noexcept;
  // The callables in `other` that are the objects known here and changed since. Raises as `equals`.
  struct Changed {
    std::vector<Ref> changed;
    std::vector<Ref> noting;  // only in records of their own
  };
  Changed changed_callables(PyObject* other) const;

  // A callable that is compared by structure, so that equal ones may be other objects.
  bool is_callable() const noexcept { return mode_ == Mode::kCallable; }
  bool holds_callables() const noexcept;
  // Whether `object` is the callable that was sealed, not an equal one.
  bool is_same_callable(PyObject* object) const noexcept { return weakly_is(held_.get(), object); }
  // A weak value of the same callable, for results.
  StaticValue as_weak() const;

  // The value for user code, as a new reference; a fresh copy of a mutable container. Empty if absent or gone.
  Ref value() const;
  // The object that a pointer comparison may take for this value, or null.
  PyObject* identity() const noexcept { return mode_ == Mode::kHeld && !mutable_ ? held_.get() : nullptr; }
  // Whether `value` gives a new copy each time.
  bool is_copied() const noexcept { return mutable_; }
  bool absent() const noexcept { return mode_ == Mode::kAbsent; }

  // Whether it keeps an object alive that may hold others.
  bool keeps_alive() const noexcept;

  int traverse(visitproc visit, void* arg) const;
  // Calls `visit` with every weak reference inside.
  template <typename Visit>
  void each_weakref(Visit&& visit) const;

 private:
  enum class Mode : std::uint8_t {
    kAbsent,
    kHeld,
    kPointer,  // held, and known by identity alone
    kWeak,
    kComposite,
    kCallable,  // `held_` is a weak reference, `composite_` what the callable holds
    kVisited,   // inside a callable: one that was met before, as number `hash_`
  };
  struct Composite;
  struct Walk;
  friend class Sealer;

  bool equals(PyObject* other, Walk& walk) const;
  bool equals_items(PyObject* other, Walk& walk) const;
  bool equals_callable(PyObject* other, Walk& walk) const;
  bool equals_part(PyObject* part, Walk& walk) const;
  bool has_plain_items(PyObject* container) const;
  bool has_plain_state(PyObject* callable) const;
  Ref value_for_comparison() const;

  Ref held_;  // the object, or its weak reference
  std::shared_ptr<const Composite> composite_;
  Py_hash_t hash_ = -1;  // of a held object that is compared by its own ==
  Mode mode_ = Mode::kAbsent;
  bool mutable_ = false;  // a snapshot with a mutable built-in container inside: handed out as a copy only
};

struct StaticValue::Composite {
  PyTypeObject* type;
  Ref type_ref;  // strong, or weak where the type is the user's
  std::vector<StaticValue> items;
  // Of callables, whose items are their parts:
  FunctionIdentity function;
  std::vector<bool> assigned;  // cells that are the function's own record
  std::size_t num_state = 0;
  // Whether a part makes no difference as long as the callable is the same object, or (a default) at all.
  bool is_own_record(std::size_t part) const noexcept { return part < assigned.size() && assigned[part]; }
  bool is_left_out(std::size_t part) const noexcept {
    return without_defaults && (part == assigned.size() || part == assigned.size() + 1);
  }
  bool without_defaults = false;
  bool shared = false;  // a callable made anew may equal this one
};

template <typename Visit>
void StaticValue::each_weakref(Visit&& visit) const {
  if (mode_ == Mode::kWeak || (mode_ == Mode::kCallable && !composite_->shared)) visit(held_.get());
  if (composite_ == nullptr) return;
  if (PyWeakref_CheckRef(composite_->type_ref.get())) visit(composite_->type_ref.get());
  for (const StaticValue& item : composite_->items) item.each_weakref(visit);
}

// True for objects whose == is identity and that take weak references: keys need not keep them alive.
bool is_weakly_held(PyObject* value);

}  // namespace partax
