// Type-exact equality and hash of one static value: equal only if a traced program cannot tell them apart.
#pragma once

#include "base/error_path.h"
#include "base/stack_room.h"
#include "statics/guards.h"
#include "statics/static_form.h"

namespace partax {

// A static value as part of a spec. *Loose* holds the object itself, for a spec that lives as long as one call.
// *Sealed* holds what a key may keep: a snapshot of mutable containers and of what callables hold, a weak reference to
// whatever is compared by identity, and the object itself otherwise.
class StaticValue {
 public:
  StaticValue() noexcept = default;  // an absent field
  static StaticValue loose(Ref value) noexcept;
  // `on_death` (may be null) is the callback of the weak references that are made. `of_key`: for a key, which keeps no
  // callable alive.
  StaticValue sealed(PyObject* on_death, Callables callables = Callables::kByStructure, bool of_key = true) const;
  // Takes a snapshot of mutable built-in containers, so that nobody else can change the value.
  void own();

  // True if `other` is the same static value. May run user code, while somebody keeps this and `other`; raises
  // WalkError.
  bool equals(PyObject* other) const;
  bool equals(const StaticValue& other) const;
  // The same where nobody asks why not: false where comparing raises.
  bool is_still(PyObject* other) const;

  // Of the callables in here, and `other` is what this value is of a call:
  bool holds_callables() const noexcept;
  bool is_callable() const noexcept { return mode_ == Mode::kCallable; }
  // What such a one holds is looked at in another place of its key, where it stands too.
  void set_repeated() noexcept { is_repeated_ = true; }
  bool is_repeated(PyObject* object) const noexcept { return is_repeated_ && weakly_is(held_.get(), object); }
  // Whether one no longer holds what it held. With `marks`, as when a trace ends that has begun with what it held, such
  // a one is known by identity alone from now on.
  bool has_changed(PyObject* other, bool marks) const;
  // Whether it keeps no object of a user's class alive.
  bool survives_owner() const noexcept;

  // Whether a key with this value has `object` itself, and not an equal one.
  bool is_object(PyObject* object) const noexcept {
    return mode_ == Mode::kWeak || mode_ == Mode::kCallable ? weakly_is(held_.get(), object) : identity() == object;
  }
  // The same value as it is held here, but for callables weakly.
  StaticValue for_result() const;

  // The value for user code, as a new reference; a fresh copy of a mutable container. Empty if absent or gone.
  Ref value() const;
  // The object that a pointer comparison may take for this value, or null.
  PyObject* identity() const noexcept { return mode_ == Mode::kHeld && !mutable_ ? held_.get() : nullptr; }
  bool absent() const noexcept { return mode_ == Mode::kAbsent; }

  // Whether it keeps an object alive that may hold others.
  bool keeps_alive() const noexcept;

  int traverse(visitproc visit, void* arg) const;
  // Calls `visit` with every weak reference inside, and whether it is of a callable.
  template <typename Visit>
  void each_weakref(Visit&& visit) const;

 private:
  enum class Mode : std::uint8_t {
    kAbsent,
    kUnseen,  // of a callable: may be anything, or absent
    kHeld,
    kPointer,  // held, and known by identity alone
    kWeak,
    kComposite,
    kCallable,  // `held_` is a weak reference, `composite_` what the callable holds
  };
  struct Composite;
  friend class Sealer;

  bool equals_value(PyObject* other, const StackReserve& stack) const;
  bool equals_items(PyObject* other, const StackReserve& stack) const;
  bool equals_callable(PyObject* other, const StackReserve& stack) const;
  bool holds_the_same(PyObject* callable, const StackReserve& stack) const;
  Ref value_for_comparison() const;

  Ref held_;  // the object, or its weak reference
  std::shared_ptr<const Composite> composite_;
  Py_hash_t hash_ = -1;  // of a held object that is compared by its own ==
  Mode mode_ = Mode::kAbsent;
  bool is_users_ = false;  // if sealed: it keeps an object of a user's class
  bool is_repeated_ = false;
  bool mutable_ = false;  // a snapshot with a mutable built-in container inside: handed out as a copy only
};

struct StaticValue::Composite {
  PyTypeObject* type;
  Ref type_ref;  // strong, or weak where the type is the user's
  std::vector<StaticValue> items;
  Ref code;  // of functions; the items of a callable are what it holds
};

template <typename Visit>
void StaticValue::each_weakref(Visit&& visit) const {
  if (mode_ == Mode::kWeak || mode_ == Mode::kCallable) visit(held_.get(), mode_ == Mode::kCallable);
  if (composite_ == nullptr) return;
  if (PyWeakref_CheckRef(composite_->type_ref.get())) visit(composite_->type_ref.get(), mode_ == Mode::kCallable);
  for (const StaticValue& item : composite_->items) item.each_weakref(visit);
}

}  // namespace partax
