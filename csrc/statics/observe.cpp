// The callables in a static value, over the life of their traces.
#include <algorithm>

#include "statics/static_value.h"

namespace partax {

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

}  // namespace partax
