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

// ---- The callables in it, over the life of their traces.

bool StaticValue::holds_callables() const noexcept {
  if (mode_ == Mode::kCallable) return true;
  if (composite_ == nullptr) return false;
  const std::vector<StaticValue>& items = composite_->items;
  return std::any_of(items.begin(), items.end(), [](const StaticValue& item) { return item.holds_callables(); });
}

bool StaticValue::mark_changed(PyObject* other) const {
  bool found = false;
  if (holds_callables()) mark_changed(other, found);
  return found;
}

// Marks each callable in here that holds something else now; tells whether that is so of `other` itself.
bool StaticValue::mark_changed(PyObject* other, bool& found) const {
  if (mode_ == Mode::kCallable) {
    if (!is_object(other)) return true;
    if (is_self_changing(other) || is_repeated_) return false;
    const std::shared_ptr<const Composite> composite = composite_;
    bool changed = false;
    std::vector<Ref> held;
    all_held(other, callable_sort(other), [&](std::size_t, Ref part) {
      held.push_back(std::move(part));
      return true;
    });
    for (std::size_t i = 0; i < held.size() && i < composite->items.size(); ++i) {
      const StaticValue& item = composite->items[i];
      if (composite->is_left_out(i)) continue;
      changed = (held[i] ? item.mark_changed(held[i].get(), found) : !item.absent()) || changed;
    }
    if (changed || held.size() != composite->items.size()) {
      mark_self_changing(other);
      found = true;
    }
    return false;
  }
  if (composite_ != nullptr && holds_callables()) {
    const std::shared_ptr<const Composite> composite = composite_;
    if (Py_TYPE(other) != composite->type) return true;
    bool changed = false;
    std::size_t i = 0;
    each_item(other, form_of(other), [&](const Ref& item) {
      if (i < composite->items.size()) {
        const StaticValue& known = composite->items[i];
        changed = (item ? known.mark_changed(item.get(), found) : !known.absent()) || changed;
      }
      ++i;
    });
    return changed || i != composite->items.size();
  }
  return !is_still(other);
}

bool StaticValue::survives_owner() const noexcept {
  if (is_users_ || composite_ == nullptr) return !is_users_;
  const std::vector<StaticValue>& items = composite_->items;
  return std::all_of(items.begin(), items.end(), [](const StaticValue& item) { return item.survives_owner(); });
}

}  // namespace partax
