// What of a static value a key may keep: snapshots of it.
#include <unordered_set>

#include "base/python_hooks.h"
#include "statics/static_value.h"

namespace partax {
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
    if (form == Form::kGeneric || form == Form::kTreedef) result.hash_ = own_hash(value, Unhashable::kCompare);
    result.is_users_ = is_users(value);
    return result;
  }

 private:
  StaticValue seal_composite(PyObject* value, Form form) {
    auto composite = std::make_shared<StaticValue::Composite>();
    composite->type = Py_TYPE(value);
    composite->type_ref = hold_type(Py_TYPE(value));
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
    if (reusable && !PyWeakref_CheckRef(composite->type_ref.get())) {
      result.mode_ = StaticValue::Mode::kHeld;
      result.held_ = Ref::borrow(value);
    }
    result.composite_ = std::move(composite);
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
    auto composite = std::make_shared<StaticValue::Composite>();
    composite->type = Py_TYPE(value);
    composite->type_ref = hold_type(Py_TYPE(value));
    const CallableSort sort = callable_sort(value);
    std::vector<Ref> held;  // user code may change the callable meanwhile
    all_held(value, sort, [&](std::size_t, Ref part) {
      held.push_back(std::move(part));
      return true;
    });
    if (sort == CallableSort::kFunction) composite->code = code_of(value);
    if (sort == CallableSort::kFunction) composite->left_out = left_out(value);
    composite->items.resize(held.size());
    ++depth_;
    for (std::size_t i = 0; i < held.size(); ++i) {
      if (held[i] && !composite->is_left_out(i)) composite->items[i] = seal_part(held[i].get());
    }
    --depth_;
    result.composite_ = std::move(composite);
    return result;
  }

  // The cells in which the same function may find anything.
  static std::vector<bool> left_out(PyObject* function) {
    std::vector<bool> left;
    if (reinterpret_cast<PyFunctionObject*>(function)->func_closure == nullptr) return left;
    each_item(python::own_cells(function).get(), Form::kTuple,
              [&](const Ref& is_own) { left.push_back(is_own.get() == Py_True); });
    return left;
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

  Ref hold_type(PyTypeObject* type) const {
    auto* object = reinterpret_cast<PyObject*>(type);
    if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) return Ref::borrow(object);
    return Ref::checked(PyWeakref_NewRef(object, on_death_));
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

}  // namespace partax
