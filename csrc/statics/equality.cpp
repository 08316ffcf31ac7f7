// Whether another value is the same static value.
#include "statics/static_value.h"

namespace partax {

bool StaticValue::equals(PyObject* other) const {
  return identity() == other || reading([&] { return equals_value(other, stack_reserve()); }, kComparing);
}

bool StaticValue::is_still(PyObject* other) const {
  const Ref keep = Ref::borrow(other);
  return attempt([&] { return equals_value(other, stack_reserve()); }, [] { return false; });
}

// It is no deeper than could be sealed, but the stack may have less room now.
bool StaticValue::equals_value(PyObject* other, const StackReserve& stack) const {
  switch (mode_) {
    case Mode::kAbsent:
      return false;
    case Mode::kWeak:
      return weakly_is(held_.get(), other);
    case Mode::kPointer:
      return held_.get() == other;
    case Mode::kHeld: {
      if (held_.get() == other && !mutable_) return true;
      if (composite_ != nullptr) return equals_items(other, stack);
      if (Py_TYPE(held_.get()) != Py_TYPE(other)) return false;
      const Form form = form_of(other);
      const bool equal = equal_atoms(held_.get(), other, form, hash_);
      return equal && (form != Form::kTreedef || have_equal_aux(held_.get(), other, stack));
    }
    case Mode::kComposite:
      return (held_ && held_.get() == other) || equals_items(other, stack);
    case Mode::kCallable:
      return equals_callable(other, stack);
  }
  return false;
}

// Of two treedefs that are equal for jax, which takes 1 for True.
bool StaticValue::have_equal_aux(PyObject* treedef, PyObject* other, const StackReserve& stack) {
  static Name state("__getstate__");  // of all its nodes
  const auto nodes = [](PyObject* of) { return Ref::checked(PyObject_CallMethodNoArgs(of, state.get())); };
  return loose(nodes(treedef)).sealed(nullptr).equals_value(nodes(other).get(), stack);
}

bool StaticValue::equals_items(PyObject* other, const StackReserve& stack) const {
  if (Py_TYPE(other) != composite_->type) return false;
  if (!stack.is_free()) refuse_depth();
  const Form form = form_of(other);
  const std::vector<StaticValue>& items = composite_->items;
  std::size_t seen = 0;
  bool equal = true;
  each_item(other, form, [&](const Ref& item) {
    const std::size_t i = seen++;
    equal = equal && i < items.size() &&
            (item ? items[i].identity() == item.get() || items[i].equals_value(item.get(), stack) : items[i].absent());
  });
  return equal && seen == items.size();
}

// One that changes what it holds while it is traced is known by identity alone.
bool StaticValue::equals_callable(PyObject* other, const StackReserve& stack) const {
  if (!stack.is_free()) refuse_depth();
  if (is_object(other) && (is_self_changing(other) || holds_the_same(other, stack))) return true;
  return Py_TYPE(other) == composite_->type && !is_self_changing(other) && MadeAnew::note();
}

bool StaticValue::holds_the_same(PyObject* callable, const StackReserve& stack) const {
  if (is_repeated_) return true;
  const Composite& known = *composite_;
  const CallableSort sort = callable_sort(callable);
  if (sort == CallableSort::kFunction && !is_same_code(known.code.get(), code_of(callable).get())) return false;
  return all_held(callable, sort, [&](std::size_t i, const Ref& part) {
    if (i >= known.items.size()) return false;
    if (known.is_left_out(i)) return true;
    if (!part) return known.items[i].absent();
    return attempt([&] { return known.items[i].equals_value(part.get(), stack); }, [] { return false; });
  });
}

bool StaticValue::equals(const StaticValue& other) const {
  if (absent() || other.absent()) return absent() && other.absent();
  const Ref value = other.value_for_comparison();
  const StaticValue keep = *this;  // user code may drop this one
  return value && keep.equals(value.get());
}

}  // namespace partax
