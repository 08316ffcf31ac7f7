// The callables in a static value, over the life of their traces.
#include <algorithm>

#include "statics/static_value.h"

namespace partax {

// Visits the callables that are compared as such, each with what stands in its place in `other`.
template <typename Visit>
void StaticValue::each_callable(PyObject* other, Visit&& visit) const {
  if (mode_ == Mode::kCallable) return visit(*this, other);
  if (composite_ == nullptr || !holds_callables()) return;
  const std::shared_ptr<const Composite> composite = composite_;
  if (other == nullptr) {
    for (const StaticValue& item : composite->items) item.each_callable(nullptr, visit);
    return;
  }
  if (Py_TYPE(other) != composite->type) return;
  std::size_t i = 0;
  each_item(other, form_of(other), [&](const Ref& item) {
    if (i < composite->items.size() && item) composite->items[i].each_callable(item.get(), visit);
    ++i;
  });
}

bool StaticValue::holds_callables() const noexcept {
  if (mode_ == Mode::kCallable) return true;
  if (composite_ == nullptr) return false;
  const std::vector<StaticValue>& items = composite_->items;
  return std::any_of(items.begin(), items.end(), [](const StaticValue& item) { return item.holds_callables(); });
}

void StaticValue::observe(PyObject* other) const {
  each_callable(other, [](const StaticValue& known, PyObject* callable) {
    const std::shared_ptr<const Composite> composite = known.composite_;
    Readings* readings = composite->readings.get();
    bool changes = false;
    known.mark_changed(callable, changes);
    if (readings == nullptr || !readings->proven()) return;
    std::string difference = "what it changes while it is traced";
    if (changes || !readings->match(callable, &difference)) readings->disprove(difference);
  });
}

// Marks each callable in here that holds something else now; tells whether that is so of `other` itself.
bool StaticValue::mark_changed(PyObject* other, bool& found) const {
  if (mode_ == Mode::kCallable) {
    if (!is_object(other)) return true;
    if (is_self_changing(other)) return false;
    const std::shared_ptr<const Composite> composite = composite_;
    bool changed = false;
    std::vector<Ref> held;
    all_held(other, callable_sort(other), [&](std::size_t, PyObject* part) {
      held.push_back(Ref::borrow(part));
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
  if (composite_ != nullptr && holds_callables() && Py_TYPE(other) == composite_->type) {
    const std::shared_ptr<const Composite> composite = composite_;
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

void StaticValue::stop_sharing(const std::string& reason) const {
  each_callable(nullptr, [&](const StaticValue& known, PyObject*) {
    if (known.composite_->readings) known.composite_->readings->disprove(reason);
  });
}

bool StaticValue::may_wait() const noexcept {
  if (mode_ == Mode::kCallable) {
    if (composite_->readings && (!composite_->readings->proven() || composite_->readings->holds_arrays())) return false;
  }
  if (is_users_ || composite_ == nullptr) return !is_users_;
  const std::vector<StaticValue>& items = composite_->items;
  return std::all_of(items.begin(), items.end(), [](const StaticValue& item) { return item.may_wait(); });
}

std::string StaticValue::difference(PyObject* other) const {
  std::string found;
  each_callable(other, [&](const StaticValue& known, PyObject* callable) {
    const Readings* readings = known.composite_->readings.get();
    if (!found.empty() || readings == nullptr || known.is_object(callable)) return;
    if (!readings->proven()) {
      found = readings->unproven();
    } else {
      readings->match(callable, &found);
    }
  });
  return found;
}

}  // namespace partax
