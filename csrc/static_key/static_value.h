// Type-exact equality and hash of one static value: equal only if a traced program cannot tell them apart.
#pragma once

#include "base/error_path.h"
#include "static_key/static_form.h"

namespace partax {

// A static value as part of a spec. *Loose* holds the object itself, for a spec that lives as long as one call.
// *Sealed* holds what a key may keep: a snapshot of mutable containers and of what callables hold, a weak reference to
// whatever is compared by identity, and the object itself otherwise.
class StaticValue {
 public:
  StaticValue() noexcept = default;  // an absent field
  static StaticValue loose(Ref value) noexcept;
  // `on_death` (may be null) is the callback of the weak references that are made.
  StaticValue sealed(PyObject* on_death, Callables callables = Callables::kByStructure) const;
  // Takes a snapshot of mutable built-in containers, so that other code cannot change the value.
  void own();

  // True if `other` is the same static value. May run user code, while somebody keeps this and `other`; raises
  // WalkError.
  bool equals(PyObject* other) const;
  bool equals(const StaticValue& other) const;

  bool is_callable() const noexcept { return mode_ == Mode::kCallable; }
  bool is_known_callable(PyObject* object) const noexcept { return is_callable() && record_->is_known(object); }
  template <typename Visit>
  void each_callable(Visit&& visit) const;
  // Why another value of the same form is not equal, if that is due to a callable; else empty.
  std::string difference(PyObject* other) const;

  // Whether a key with this value has `object` itself, and not an equal one.
  bool is_object(PyObject* object) const noexcept {
    if (is_callable()) return record_->is_original(object);
    return mode_ == Mode::kWeak ? weakly_is(held_.get(), object) : identity() == object;
  }
  StaticValue for_result() const;

  // The value for user code, as a new reference; a fresh copy of a mutable container. Empty if absent or gone.
  Ref value() const;
  // The object that a pointer comparison may take for this value, or null.
  PyObject* identity() const noexcept { return mode_ == Mode::kHeld && !mutable_ ? held_.get() : nullptr; }
  bool absent() const noexcept { return mode_ == Mode::kAbsent; }

  int traverse(visitproc visit, void* arg) const;
  // Calls `visit` with every weak reference inside, and whether it is of a callable.
  template <typename Visit>
  void each_weakref(Visit&& visit) const;

 private:
  enum class Mode : std::uint8_t {
    kAbsent,
    kHeld,
    kWeak,
    kComposite,
    kCallable,  // in `record_`
  };
  struct Composite;

  static StaticValue seal(PyObject* value, PyObject* on_death, Callables callables);
  static StaticValue seal_composite(PyObject* value, Form form, PyObject* on_death, Callables callables);
  bool equals_value(PyObject* other) const;
  bool equals_items(PyObject* other) const;
  Ref value_for_comparison() const;

  Ref held_;  // the object, or its weak reference
  std::shared_ptr<const Composite> composite_;
  std::shared_ptr<CallableRecord> record_;  // shared by all places where a key has the callable
  Py_hash_t hash_ = -1;                     // of a held object that is compared by its own ==
  Mode mode_ = Mode::kAbsent;
  bool mutable_ = false;  // a snapshot with a mutable built-in container inside: handed out as a copy only
};

struct StaticValue::Composite {
  PyTypeObject* type;
  Ref type_ref;  // strong, or weak where the type is the user's
  std::vector<StaticValue> items;
};

template <typename Visit>
void StaticValue::each_callable(Visit&& visit) const {
  if (record_ != nullptr) visit(*record_);
  if (composite_ == nullptr) return;
  for (const StaticValue& item : composite_->items) item.each_callable(visit);
}

template <typename Visit>
void StaticValue::each_weakref(Visit&& visit) const {
  if (mode_ == Mode::kWeak) visit(held_.get(), false);
  if (record_ != nullptr) record_->identities.front().each_weakref([&](PyObject* weakref) { visit(weakref, true); });
  if (composite_ == nullptr) return;
  if (PyWeakref_CheckRef(composite_->type_ref.get())) visit(composite_->type_ref.get(), false);
  for (const StaticValue& item : composite_->items) item.each_weakref(visit);
}

}  // namespace partax
