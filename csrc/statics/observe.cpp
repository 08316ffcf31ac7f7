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
