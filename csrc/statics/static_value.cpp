#include "statics/static_value.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

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

bool StaticValue::has_changed(PyObject* other, bool marks) const {
  if (!holds_callables() || (mode_ == Mode::kCallable && (!is_object(other) || is_repeated_))) return false;
  const std::shared_ptr<const Composite> composite = composite_;
  if (Py_TYPE(other) != composite->type || is_self_changing(other)) return false;
  std::vector<Ref> parts;
  const Form form = mode_ == Mode::kCallable ? Form::kCallable : form_of(other);
  each_item(other, form, [&](const Ref& part) { parts.push_back(part); });
  bool found = false;
  for (std::size_t i = 0; i < parts.size() && i < composite->items.size(); ++i) {
    if (parts[i]) found = composite->items[i].has_changed(parts[i].get(), marks) || found;
  }
  const MadeAnew made_anew;  // whether another function in it is an equal one, the guards say
  if (mode_ != Mode::kCallable || holds_the_same(other, stack_reserve())) return found;
  if (marks) mark_self_changing(other);
  return true;
}

bool StaticValue::survives_owner() const noexcept {
  if (is_users_ || composite_ == nullptr) return !is_users_;
  const std::vector<StaticValue>& items = composite_->items;
  return std::all_of(items.begin(), items.end(), [](const StaticValue& item) { return item.survives_owner(); });
}

int StaticValue::traverse(visitproc visit, void* arg) const {
  if (const int status = visit_all(visit, arg, held_)) return status;
  // A composite that a copy of this value shares is not this object's alone to report.
  return composite_.use_count() == 1 ? visit_all(visit, arg, composite_->type_ref, composite_->items) : 0;
}

// ---- Whether another value is the same static value.

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
    case Mode::kUnseen:
      return true;
    case Mode::kWeak:
      return weakly_is(held_.get(), other);
    case Mode::kPointer:
      return held_.get() == other;
    case Mode::kHeld: {
      if (held_.get() == other && !mutable_) return true;
      if (composite_ != nullptr) return equals_items(other, stack);
      return Py_TYPE(held_.get()) == Py_TYPE(other) && equal_atoms(held_.get(), other, form_of(other), hash_);
    }
    case Mode::kComposite:
      return (held_ && held_.get() == other) || equals_items(other, stack);
    case Mode::kCallable:
      return equals_callable(other, stack);
  }
  return false;
}

bool StaticValue::equals_items(PyObject* other, const StackReserve& stack) const {
  if (Py_TYPE(other) != composite_->type) return false;
  if (!stack.is_free()) refuse_depth();
  const Form form = mode_ == Mode::kCallable ? Form::kCallable : form_of(other);
  const std::vector<StaticValue>& items = composite_->items;
  std::size_t seen = 0;
  bool equal = true;
  each_item(other, form, [&](const Ref& item) {
    const std::size_t i = seen++;
    equal = equal && i < items.size() &&
            (item ? items[i].identity() == item.get() || items[i].equals_value(item.get(), stack)
                  : items[i].absent() || items[i].mode_ == Mode::kUnseen);
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
  const Ref& code = composite_->code;
  if (code && !is_same_code(code.get(), code_of(callable).get())) return false;
  return attempt([&] { return equals_items(callable, stack); }, [] { return false; });
}

bool StaticValue::equals(const StaticValue& other) const {
  if (absent() || other.absent()) return absent() && other.absent();
  const Ref value = other.value_for_comparison();
  const StaticValue keep = *this;  // user code may drop this one
  return value && keep.equals(value.get());
}

// ---- What of a static value a key may keep: snapshots of it.

// Makes sealed values.
class Sealer {
 public:
  Sealer(PyObject* on_death, Callables callables, bool of_key)
      : on_death_(on_death), callables_(callables), of_key_(of_key) {}

  StaticValue seal(PyObject* value) {
    const DepthGuard guard;
    const Form form = form_of(value);
    if (form == Form::kCallable) return seal_callable(value);
    // Inside a callable other objects are known by identity: their == may keep them, or hide what they are.
    if (depth_ > 0 && (form == Form::kArray || form == Form::kGeneric)) return weak(value);
    if (is_composite(form)) return seal_composite(value, form);
    if (form == Form::kIdentity && PyType_SUPPORTS_WEAKREFS(Py_TYPE(value))) return weak(value);
    StaticValue result;
    result.mode_ = StaticValue::Mode::kHeld;
    result.held_ = Ref::borrow(value);
    if (form == Form::kGeneric) result.hash_ = own_hash(value, Unhashable::kCompare);
    result.is_users_ = is_users(value);
    return result;
  }

 private:
  StaticValue seal_composite(PyObject* value, Form form) {
    const auto composite = composite_of(value);
    bool reusable = !is_mutable_form(form) && form != Form::kSubclass;
    each_item(value, form, [&](const Ref& item) {
      // The object of a method is known by identity, as for Python, whatever its == says.
      const bool is_object =
          form == Form::kMethod && !composite->items.empty() && form_of(item.get()) == Form::kGeneric;
      composite->items.push_back(!item ? StaticValue() : is_object ? weak(item.get()) : seal(item.get()));
      reusable = reusable && composite->items.back().identity() != nullptr;
    });
    // A value that is immutable all the way down and holds nothing weakly is also known by its pointer.
    StaticValue result;
    result.mode_ = StaticValue::Mode::kComposite;
    if (form == Form::kTreedef || (reusable && !PyWeakref_CheckRef(composite->type_ref.get()))) {
      result.mode_ = StaticValue::Mode::kHeld;
      result.held_ = Ref::borrow(value);
    }
    result.composite_ = composite;
    // What a wrapper remembers of its callable may keep it alive: then its pointer tells that it is unchanged.
    const bool immutable = form != Form::kSubclass && !holds_mutable(value);
    if (!of_key_ && !result.holds_callables() && immutable) result.held_ = Ref::borrow(value);
    return result;
  }

  StaticValue seal_callable(PyObject* value) {
    const bool weakly = PyType_SUPPORTS_WEAKREFS(Py_TYPE(value)) != 0;
    if (callables_ == Callables::kByIdentity || depth_ >= kMaxCallableDepth || !weakly) return weak(value);
    // What it holds is looked at, and its death heard of, where it was met first.
    const bool is_first = met_.insert(value).second;
    StaticValue result;
    result.held_ = Ref::checked(PyWeakref_NewRef(value, is_first ? on_death_ : nullptr));
    result.mode_ = is_first ? StaticValue::Mode::kCallable : StaticValue::Mode::kWeak;
    if (!is_first) return result;
    const auto composite = composite_of(value);
    std::vector<Ref> held;  // user code may change the callable meanwhile
    each_held(value, [&](const Ref& part) { held.push_back(part); });
    composite->items.resize(held.size());
    if (PyFunction_Check(value)) {
      composite->code = code_of(value);
      note_unseen(value, composite->items);
    }
    ++depth_;
    for (std::size_t i = 0; i < held.size(); ++i) {
      StaticValue& item = composite->items[i];
      if (held[i] && item.mode_ != StaticValue::Mode::kUnseen) item = seal_part(held[i].get());
    }
    --depth_;
    result.composite_ = composite;
    return result;
  }

  // The cells in which the same function may find anything.
  static void note_unseen(PyObject* function, std::vector<StaticValue>& parts) {
    if (reinterpret_cast<PyFunctionObject*>(function)->func_closure == nullptr) return;
    const Ref are_own = python::own_cells(function);
    std::size_t i = 0;
    for (PyObject* is_own : Items(are_own.get())) {
      if (is_own == Py_True) parts[i].mode_ = StaticValue::Mode::kUnseen;
      ++i;
    }
  }

  // Inside a callable nothing is refused.
  StaticValue seal_part(PyObject* part) {
    const int depth = depth_;
    return attempt([&] { return seal(part); },
                   [&] {
                     depth_ = depth;
                     return weak(part);
                   });
  }

  StaticValue weak(PyObject* value) const {
    StaticValue result;
    const bool weakly = PyType_SUPPORTS_WEAKREFS(Py_TYPE(value));
    result.mode_ = weakly ? StaticValue::Mode::kWeak : StaticValue::Mode::kPointer;
    result.held_ = weakly ? Ref::checked(PyWeakref_NewRef(value, on_death_)) : Ref::borrow(value);
    result.is_users_ = !weakly && is_users(value);
    return result;
  }

  static bool is_users(PyObject* value) {
    return PyObject_GC_IsTracked(value) != 0 && !TypeTable::instance().find(value).is_installed;
  }

  // Without its items.
  std::shared_ptr<StaticValue::Composite> composite_of(PyObject* value) const {
    auto composite = std::make_shared<StaticValue::Composite>();
    composite->type = Py_TYPE(value);
    auto* type = reinterpret_cast<PyObject*>(composite->type);
    const bool is_users = PyType_HasFeature(composite->type, Py_TPFLAGS_HEAPTYPE) != 0;
    composite->type_ref = is_users ? Ref::checked(PyWeakref_NewRef(type, on_death_)) : Ref::borrow(type);
    return composite;
  }

  static constexpr int kMaxCallableDepth = 100;  // of callables inside callables: beyond, identity decides
  PyObject* on_death_;
  Callables callables_;
  bool of_key_;
  int depth_ = 0;  // inside how many callables
  std::unordered_set<PyObject*> met_;
};

StaticValue StaticValue::sealed(PyObject* on_death, Callables callables, bool of_key) const {
  if (mode_ != Mode::kHeld || composite_ != nullptr) return *this;
  return reading([&] { return Sealer(on_death, callables, of_key).seal(held_.get()); }, kComparing);
}

// ---- What callables hold.

namespace {

// By address, each with a weak reference that tells whether it is still that callable.
using SelfChanging = std::unordered_map<PyObject*, Ref>;

SelfChanging& self_changing() {
  static auto* const known = new SelfChanging();  // never destroyed: the interpreter may be gone by then
  return *known;
}

}  // namespace

CallableSort callable_sort(PyObject* value) noexcept {
  PyTypeObject* type = Py_TYPE(value);
  if (type == &PyFunction_Type) return CallableSort::kFunction;
  const TakenApart& known = taken_apart();
  if (known.jitted.is(type)) return CallableSort::kJitted;
  if (known.wrapper.is(type) || (known.wrapper && known.wrapper.is(type->tp_base))) return CallableSort::kWrapper;
  PyTypeObject* partial = known.partial.type();
  if (partial != nullptr && PyType_IsSubtype(type, partial) && type->tp_hash == partial->tp_hash &&
      type->tp_richcompare == partial->tp_richcompare) {
    return CallableSort::kPartial;
  }
  return CallableSort::kNone;
}

Ref partial_part(PyObject* partial, std::size_t i) {
  static Name names[] = {Name("func"), Name("args"), Name("keywords")};
  return attribute(partial, names[i]);
}

// `==` of code objects takes no notice of qualified names, of the order of sets, and of that in the code inside.
bool is_same_code(PyObject* left, PyObject* right) {
  if (left == right) return true;
  const auto *a = reinterpret_cast<PyCodeObject*>(left), *b = reinterpret_cast<PyCodeObject*>(right);
  return are_equal(a->co_qualname, b->co_qualname) && are_equal(left, right) &&
         are_equal(a->co_localspluskinds, b->co_localspluskinds) &&
         StaticValue::loose(Ref::borrow(a->co_consts)).sealed(nullptr).equals(b->co_consts);
}

void mark_self_changing(PyObject* callable) {
  SelfChanging& known = self_changing();
  if (known.size() % 1024 == 1023) {
    for (auto it = known.begin(); it != known.end();) {
      it = weak_target(it->second.get()) ? std::next(it) : known.erase(it);
    }
  }
  known[callable] = Ref::checked(PyWeakref_NewRef(callable, nullptr));
}

bool is_self_changing(PyObject* callable) noexcept {
  const SelfChanging& known = self_changing();
  if (known.empty()) return false;
  const auto found = known.find(callable);
  return found != known.end() && weakly_is(found->second.get(), callable);
}

}  // namespace partax
