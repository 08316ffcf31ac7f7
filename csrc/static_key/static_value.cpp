#include "static_key/static_value.h"

#include "base/python_hooks.h"

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
  if (mode_ == Mode::kComposite || mutable_) return {};
  StaticValue result = *this;
  result.composite_.reset();
  return result;
}

Ref StaticValue::value_for_comparison() const {
  if (is_callable()) return record_->identities.front().get();
  return mode_ == Mode::kWeak ? weak_target(held_.get()) : held_;
}

Ref StaticValue::value() const {
  if (is_callable() || mode_ == Mode::kWeak) return value_for_comparison();
  return mutable_ ? copied(held_.get()) : held_;
}

std::string StaticValue::difference(PyObject* other) const {
  if (is_callable()) return record_->difference(other);
  if (composite_ == nullptr || Py_TYPE(other) != composite_->type) return {};
  const std::shared_ptr<const Composite> composite = composite_;
  std::vector<Ref> parts;
  each_item(other, form_of(other), [&](const Ref& part) { parts.push_back(part); });
  for (std::size_t i = 0; i < parts.size() && i < composite->items.size(); ++i) {
    if (!parts[i] || composite->items[i].equals(parts[i].get())) continue;
    return composite->items[i].difference(parts[i].get());
  }
  return {};
}

int StaticValue::traverse(visitproc visit, void* arg) const {
  if (const int status = visit_all(visit, arg, held_)) return status;
  // A composite that a copy of this value shares is not this object's alone to report.
  if (record_.use_count() == 1) {
    if (const int status = record_->traverse(visit, arg)) return status;
  }
  return composite_.use_count() == 1 ? visit_all(visit, arg, composite_->type_ref, composite_->items) : 0;
}

bool StaticValue::equals(PyObject* other) const {
  return identity() == other || reading([&] { return equals_value(other); }, kComparing);
}

// The snapshot had room for this depth, but the stack may have less room now.
bool StaticValue::equals_value(PyObject* other) const {
  switch (mode_) {
    case Mode::kAbsent:
      return false;
    case Mode::kWeak:
      return weakly_is(held_.get(), other);
    case Mode::kHeld: {
      if (held_.get() == other && !mutable_) return true;
      if (composite_ != nullptr) return equals_items(other);
      return Py_TYPE(held_.get()) == Py_TYPE(other) && equal_atoms(held_.get(), other, form_of(other), hash_);
    }
    case Mode::kComposite:
      return equals_items(other);
    case Mode::kCallable: {
      if (record_->is_known(other)) return true;
      check_depth();
      const std::shared_ptr<CallableRecord> record = record_;  // user code may drop this one
      return form_of(other) == Form::kCallable && record->accepts(other);
    }
  }
  return false;
}

bool StaticValue::equals_items(PyObject* other) const {
  if (Py_TYPE(other) != composite_->type) return false;
  check_depth();
  const Form form = form_of(other);
  const std::vector<StaticValue>& items = composite_->items;
  std::size_t seen = 0;
  bool equal = true;
  each_item(other, form, [&](const Ref& item) {
    const std::size_t i = seen++;
    equal = equal && i < items.size() &&
            (item ? items[i].identity() == item.get() || items[i].equals_value(item.get()) : items[i].absent());
  });
  return equal && seen == items.size();
}

bool StaticValue::equals(const StaticValue& other) const {
  if (absent() || other.absent()) return absent() && other.absent();
  const Ref value = other.value_for_comparison();
  const StaticValue keep = *this;  // user code may drop this one
  return value && keep.equals(value.get());
}

StaticValue StaticValue::seal(PyObject* value, PyObject* on_death, Callables callables) {
  check_depth();
  const Form form = form_of(value);
  if (is_composite(form)) return seal_composite(value, form, on_death, callables);
  StaticValue result;
  if (form == Form::kCallable) {
    result.mode_ = Mode::kCallable;
    result.record_ = std::make_shared<CallableRecord>(value, on_death, callables == Callables::kByStructure);
    return result;
  }
  const bool is_weak = form == Form::kIdentity && PyType_SUPPORTS_WEAKREFS(Py_TYPE(value));
  result.mode_ = is_weak ? Mode::kWeak : Mode::kHeld;
  result.held_ = is_weak ? Ref::checked(PyWeakref_NewRef(value, on_death)) : Ref::borrow(value);
  if (form == Form::kGeneric) result.hash_ = own_hash(value, Unhashable::kCompare);
  // An object without a hash may change, so it is compared with a copy.
  if (form == Form::kGeneric && result.hash_ == -1) result.held_ = python::equal_copy(value);
  return result;
}

StaticValue StaticValue::seal_composite(PyObject* value, Form form, PyObject* on_death, Callables callables) {
  auto composite = std::make_shared<Composite>();
  composite->type = Py_TYPE(value);
  auto* type = reinterpret_cast<PyObject*>(composite->type);
  const bool is_users = PyType_HasFeature(composite->type, Py_TPFLAGS_HEAPTYPE) != 0;
  composite->type_ref = is_users ? Ref::checked(PyWeakref_NewRef(type, on_death)) : Ref::borrow(type);
  bool reusable = !is_mutable_form(form);
  each_item(value, form, [&](const Ref& item) {
    composite->items.push_back(item ? seal(item.get(), on_death, callables) : StaticValue());
    reusable = reusable && composite->items.back().identity() != nullptr;
  });
  // A value that is immutable all the way down and holds nothing weakly is also identified by its pointer.
  StaticValue result;
  result.mode_ = Mode::kComposite;
  if (reusable && !is_users) {
    result.mode_ = Mode::kHeld;
    result.held_ = Ref::borrow(value);
  }
  result.composite_ = std::move(composite);
  return result;
}

StaticValue StaticValue::sealed(PyObject* on_death, Callables callables) const {
  if (mode_ != Mode::kHeld || composite_ != nullptr) return *this;
  return reading([&] { return seal(held_.get(), on_death, callables); }, kComparing);
}

}  // namespace partax
