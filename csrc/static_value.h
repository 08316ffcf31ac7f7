// Type-exact equality and hash of one static value: equal only if a traced program cannot tell them apart.
#pragma once

#include <memory>

#include "python_api.h"
#include "tree_path.h"

namespace partax {

// What to do with a value that has no hash: refuse it, or (aux data of registered nodes) compare it only.
enum class Unhashable : std::uint8_t { kRefuse, kCompare };

// Hash that agrees with StaticValue::equals. Raises WalkError for values that cannot be static.
std::size_t static_hash(PyObject* value, Unhashable unhashable);

// A static value as part of a spec. *Loose* holds the object itself, for a spec that lives as long as one call.
// *Sealed* holds what a key may keep: a snapshot of mutable containers, a weak reference to whatever is compared by
// identity, and the object itself otherwise.
class StaticValue {
 public:
  StaticValue() noexcept = default;  // an absent field
  static StaticValue loose(Ref value) noexcept;
  // `on_death` (may be null) is the callback of the weak references that are made.
  StaticValue sealed(PyObject* on_death) const;
  // Like sealed, but keeps a strong reference unless `weakly`.
  StaticValue handed_out(bool weakly) const;

  // True if `other` is the same static value. May run user code; raises WalkError.
  bool equals(PyObject* other) const;
  bool equals(const StaticValue& other) const;

  // The value for user code, as a new reference; a fresh copy of a mutable container. Empty if absent or gone.
  Ref value() const;
  // The object that a pointer comparison may take for this value, or null.
  PyObject* identity() const noexcept { return mode_ == Mode::kHeld && !mutable_ ? held_.get() : nullptr; }
  // Whether `value` gives a new copy each time.
  bool is_copied() const noexcept { return mutable_; }
  bool absent() const noexcept { return mode_ == Mode::kAbsent; }

  int traverse(visitproc visit, void* arg) const;
  // Calls `visit` with every weak reference inside.
  template <typename Visit>
  void each_weakref(Visit&& visit) const;

 private:
  enum class Mode : std::uint8_t { kAbsent, kHeld, kWeak, kComposite };
  struct Composite;
  friend class Sealer;

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
};

template <typename Visit>
void StaticValue::each_weakref(Visit&& visit) const {
  if (mode_ == Mode::kWeak) visit(held_.get());
  if (composite_ == nullptr) return;
  if (PyWeakref_CheckRef(composite_->type_ref.get())) visit(composite_->type_ref.get());
  for (const StaticValue& item : composite_->items) item.each_weakref(visit);
}

// True for objects whose == is identity and that take weak references: keys need not keep them alive.
bool is_weakly_held(PyObject* value);

}  // namespace partax
