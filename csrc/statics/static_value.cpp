#include "statics/static_value.h"

namespace partax {

StaticValue StaticValue::loose(Ref value) noexcept {
  StaticValue result;
  if (!value) return result;
  result.mode_ = Mode::kHeld;
  result.held_ = std::move(value);
  return result;
}

StaticValue StaticValue::handed_out() const {
  if (mode_ != Mode::kHeld) return *this;
  StaticValue result = loose(held_);
  result.own();
  return result;
}

void StaticValue::own() {
  if (mode_ != Mode::kHeld || !holds_mutable(held_.get())) return;
  held_ = copied(held_.get());
  mutable_ = true;
}

StaticValue StaticValue::for_result() const {
  StaticValue result;
  if (mode_ == Mode::kComposite || mutable_) return result;
  result.mode_ = mode_ == Mode::kCallable ? Mode::kWeak : mode_;
  result.held_ = held_;
  return result;
}

Ref StaticValue::value_for_comparison() const {
  return mode_ == Mode::kWeak || mode_ == Mode::kCallable ? weak_target(held_.get()) : held_;
}

Ref StaticValue::value() const {
  if (mode_ == Mode::kWeak || mode_ == Mode::kCallable) return weak_target(held_.get());
  return mutable_ ? copied(held_.get()) : held_;
}

bool StaticValue::keeps_alive() const noexcept {
  if (mode_ != Mode::kHeld && mode_ != Mode::kPointer) return false;
  return PyObject_GC_IsTracked(held_.get()) != 0 || Py_TYPE(held_.get()) == &PyBaseObject_Type;  // a mark of its own
}

int StaticValue::traverse(visitproc visit, void* arg) const {
  Py_VISIT(held_.get());
  // A composite that a copy of this value shares is not this object's alone to report.
  if (composite_ == nullptr || composite_.use_count() > 1) return 0;
  Py_VISIT(composite_->type_ref.get());
  for (const StaticValue& item : composite_->items) {
    if (const int status = item.traverse(visit, arg)) return status;
  }
  return 0;
}

}  // namespace partax
