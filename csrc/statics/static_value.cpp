#include "statics/static_value.h"

#include <algorithm>

namespace partax {

StaticValue StaticValue::loose(Ref value) noexcept {
  StaticValue result;
  if (!value) return result;
  result.mode_ = Mode::kHeld;
  result.held_ = std::move(value);
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

// ---- The callables in it, over the life of their traces.

bool StaticValue::holds_callables() const noexcept {
  if (mode_ == Mode::kCallable) return true;
  if (composite_ == nullptr) return false;
  const std::vector<StaticValue>& items = composite_->items;
  return std::any_of(items.begin(), items.end(), [](const StaticValue& item) { return item.holds_callables(); });
}

bool StaticValue::mark_changed(PyObject* other) const {
  if (!holds_callables() || (mode_ == Mode::kCallable && (!is_object(other) || is_repeated_))) return false;
  const std::shared_ptr<const Composite> composite = composite_;
  if (Py_TYPE(other) != composite->type || is_self_changing(other)) return false;
  std::vector<Ref> parts;
  const auto add = [&](const Ref& part) { parts.push_back(part); };
  if (mode_ == Mode::kCallable) {
    all_held(other, callable_sort(other), [&](std::size_t, const Ref& part) {
      add(part);
      return true;
    });
  } else {
    each_item(other, form_of(other), add);
  }
  bool found = false;
  for (std::size_t i = 0; i < parts.size() && i < composite->items.size(); ++i) {
    if (parts[i] && !composite->is_left_out(i)) found = composite->items[i].mark_changed(parts[i].get()) || found;
  }
  const MadeAnew none(false);
  if (mode_ != Mode::kCallable || is_still(other)) return found;
  mark_self_changing(other);
  return true;
}

bool StaticValue::survives_owner() const noexcept {
  if (is_users_ || composite_ == nullptr) return !is_users_;
  const std::vector<StaticValue>& items = composite_->items;
  return std::all_of(items.begin(), items.end(), [](const StaticValue& item) { return item.survives_owner(); });
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
