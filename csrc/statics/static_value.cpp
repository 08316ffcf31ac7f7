#include "statics/static_value.h"

#include <algorithm>
#include <unordered_set>

namespace partax {
namespace {

// Callables inside callables: beyond, identity decides.
constexpr int kMaxCallableDepth = 100;

std::size_t mix(std::size_t seed, std::size_t value) noexcept {
  return (seed ^ value) * 0x9E3779B97F4A7C15ull + (seed >> 29);
}

std::size_t pointer_hash(const void* pointer) noexcept {
  return mix(0x51ED270B, reinterpret_cast<std::size_t>(pointer));
}

template <typename Bits>
std::size_t bits_hash(const Bits& bits) noexcept {
  std::uint64_t words[(sizeof(Bits) + 7) / 8] = {};
  std::memcpy(words, &bits, sizeof(Bits));
  std::size_t seed = 17;
  for (std::uint64_t word : words) seed = mix(seed, word);
  return seed;
}

constexpr const char* kComparing = "comparing or hashing the static value";

// `body()`, or `otherwise()` where it raises: inside a callable nothing is refused.
template <typename Body, typename Otherwise>
auto attempt(Body&& body, Otherwise&& otherwise) -> decltype(body()) {
  try {
    return body();
  } catch (const PythonError&) {
    forgive();
  } catch (const WalkError& error) {
    if (error.must_pass()) throw;
  }
  return otherwise();
}

// A method of one object that is written in C; its == would keep that object, which may be an array.
bool is_bound_builtin(PyObject* value) noexcept {
  if (PyCFunction_Check(value)) {
    PyObject* self = PyCFunction_GET_SELF(value);
    return self != nullptr && !PyModule_Check(self) && !PyType_Check(self);
  }
  return std::strcmp(Py_TYPE(value)->tp_name, "method-wrapper") == 0;  // the type has no public name
}

std::size_t hash_of(PyObject* value, Unhashable unhashable, Callables callables);

// Of what a callable holds, all may change without a new key, or be another object: only its code counts.
std::size_t hash_callable(PyObject* value, std::size_t seed, Callables callables) {
  if (callables == Callables::kByIdentity) return mix(seed, pointer_hash(value));
  const CallableSort sort = callable_sort(value);
  if (sort == CallableSort::kFunction) {
    const auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(value));
    seed = mix(seed, static_cast<std::size_t>(own_hash(code->co_qualname, Unhashable::kRefuse)));
    return mix(seed, static_cast<std::size_t>(code->co_firstlineno));
  }
  Ref inner;
  if (sort == CallableSort::kPartial) inner = Ref::checked(PyObject_GetAttr(value, partial_names()[0]));
  if (sort == CallableSort::kWrapper) inner = taken_apart().wrapped(value);
  if (sort == CallableSort::kJitted) inner = maybe_attribute(value, "__wrapped__");
  if (!inner) forgive();
  const bool is_known = inner && form_of(inner.get()) == Form::kCallable;
  return is_known ? mix(seed, hash_of(inner.get(), Unhashable::kRefuse, callables)) : seed;
}

std::size_t hash_of(PyObject* value, Unhashable unhashable, Callables callables) {
  const DepthGuard guard;
  const Form form = form_of(value);
  const std::size_t seed = pointer_hash(Py_TYPE(value));
  if (is_composite(form)) {
    std::size_t combined = seed;
    each_item(value, form, [&](const Ref& item) {
      const std::size_t hash = item ? hash_of(item.get(), unhashable, callables) : 0;
      // Order matters, but for sets, whose iteration order is not part of their value.
      combined = is_unordered(form) ? combined + mix(3, hash) : mix(combined, hash);
    });
    return combined;
  }
  switch (form) {
    case Form::kIdentity:
      return mix(seed, pointer_hash(value));
    case Form::kCallable:
      return hash_callable(value, seed, callables);
    case Form::kFloat:
      return mix(seed, bits_hash(PyFloat_AS_DOUBLE(value)));
    case Form::kComplex:
      return mix(seed, bits_hash(PyComplex_AsCComplex(value)));
    case Form::kNumpyScalar:
      return mix(seed, static_cast<std::size_t>(own_hash(numpy_bytes(value).get(), Unhashable::kRefuse)));
    case Form::kByteArray: {
      Ref bytes = Ref::checked(PyBytes_FromObject(value));
      return mix(seed, static_cast<std::size_t>(own_hash(bytes.get(), Unhashable::kRefuse)));
    }
    case Form::kArray:
      refuse_array(value);
    default:
      return mix(seed, static_cast<std::size_t>(own_hash(value, unhashable)));
  }
}

}  // namespace

std::size_t static_hash(PyObject* value, Unhashable unhashable, Callables callables) {
  return reading([&] { return hash_of(value, unhashable, callables); }, kComparing);
}

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

// Makes sealed values.
class Sealer {
 public:
  // `reads`: what callables read is written down too.
  Sealer(PyObject* on_death, Callables callables, bool reads)
      : on_death_(on_death), callables_(callables), reads_(reads) {}

  StaticValue seal(PyObject* value) {
    const DepthGuard guard;
    const Form form = form_of(value);
    if (form == Form::kCallable) return seal_callable(value);
    if (depth_ > 0 && (form == Form::kArray || is_bound_builtin(value))) return weak(value);
    if (is_composite(form)) return seal_composite(value, form);
    if (form == Form::kIdentity && PyType_SUPPORTS_WEAKREFS(Py_TYPE(value))) return weak(value);
    StaticValue result;
    result.mode_ = StaticValue::Mode::kHeld;
    result.held_ = form == Form::kByteArray ? copied(value) : Ref::borrow(value);
    result.mutable_ = form == Form::kByteArray;
    if (form == Form::kGeneric || form == Form::kTreedef) {
      if (depth_ == 0) {
        result.hash_ = own_hash(value, Unhashable::kCompare);
      } else {
        result.hash_ = attempt([&] { return own_hash(value, Unhashable::kRefuse); }, [] { return Py_hash_t{-1}; });
        if (result.hash_ == -1) return weak(value);
      }
    }
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
      if (is_unordered(form)) {
        const std::size_t hash = attempt([&] { return hash_of(item.get(), Unhashable::kCompare, callables_); },
                                         [] { return std::size_t{0}; });
        composite->by_hash.emplace(hash, composite->items.size());
      }
      composite->items.push_back(item ? seal(item.get()) : StaticValue());
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
    if (!reads_ && !result.holds_callables() && immutable) result.held_ = Ref::borrow(value);
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
    all_held(value, sort, [&](std::size_t, PyObject* part) {
      held.push_back(Ref::borrow(part));
      return true;
    });
    if (sort == CallableSort::kFunction) composite->code = Ref::borrow(PyFunction_GET_CODE(value));
    const bool is_wrapped = callables_ == Callables::kWrapped && met_.size() == 1;
    if (sort == CallableSort::kFunction) composite->left_out = left_out(value, held, is_wrapped);
    if (reads_ && depth_ == 0) composite->readings = Readings::of(value, is_wrapped);
    composite->items.resize(held.size());
    ++depth_;
    for (std::size_t i = 0; i < held.size(); ++i) {
      if (held[i] && !composite->is_left_out(i)) composite->items[i] = seal_part(held[i].get());
    }
    --depth_;
    result.composite_ = std::move(composite);
    return result;
  }

  // What a function's code only writes it does not read; and the defaults of a wrapped one are arguments.
  static std::vector<bool> left_out(PyObject* function, const std::vector<Ref>& held, bool is_wrapped) {
    std::vector<bool> left(held.size(), false);
    if (held.size() > 3) {
      const Ref code = Ref::borrow(PyFunction_GET_CODE(function));
      for (std::size_t i = 0; i + 3 < held.size(); ++i) left[i] = is_written_cell(code.get(), i, held[i].get());
    }
    // One with attributes may be called by another signature, which knows no defaults.
    if (is_wrapped && !held.back()) left[held.size() - 3] = left[held.size() - 2] = true;
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

  PyObject* on_death_;
  Callables callables_;
  bool reads_;
  int depth_ = 0;  // inside how many callables
  std::unordered_set<PyObject*> met_;
};

StaticValue StaticValue::sealed(PyObject* on_death, Callables callables, bool reads) const {
  if (mode_ != Mode::kHeld || composite_ != nullptr) return *this;
  return reading([&] { return Sealer(on_death, callables, reads).seal(held_.get()); }, kComparing);
}

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
    case Mode::kHeld:
      if (held_.get() == other && !mutable_) return true;
      if (composite_ != nullptr) return equals_items(other, stack);
      return Py_TYPE(held_.get()) == Py_TYPE(other) && equal_atoms(held_.get(), other, form_of(other), hash_);
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
  const Form form = form_of(other);
  if (is_unordered(form)) return equals_set(other, form, stack);
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

bool StaticValue::equals_set(PyObject* other, Form form, const StackReserve& stack) const {
  const std::vector<StaticValue>& items = composite_->items;
  std::vector<bool> taken(items.size(), false);
  std::size_t found = 0, seen = 0;
  each_item(other, form, [&](const Ref& item) {
    if (found < seen++) return;
    const std::size_t hash = hash_of(item.get(), Unhashable::kCompare, Callables::kByStructure);
    const auto range = composite_->by_hash.equal_range(hash);
    for (auto it = range.first; it != range.second && found < seen; ++it) {
      if (taken[it->second] || !items[it->second].equals_value(item.get(), stack)) continue;
      taken[it->second] = true;
      ++found;
    }
  });
  return found == seen && seen == items.size();
}

// One that changes what it holds while it is traced is known by identity alone.
bool StaticValue::equals_callable(PyObject* other, const StackReserve& stack) const {
  if (!stack.is_free()) refuse_depth();
  if (is_object(other) && (is_self_changing(other) || holds_the_same(other, stack))) return true;
  return composite_->readings && Py_TYPE(other) == composite_->type && !is_self_changing(other) &&
         composite_->readings->match(other);
}

bool StaticValue::holds_the_same(PyObject* callable, const StackReserve& stack) const {
  const Composite& known = *composite_;
  const CallableSort sort = callable_sort(callable);
  if (sort == CallableSort::kFunction && !is_same_code(known.code.get(), PyFunction_GET_CODE(callable))) return false;
  return all_held(callable, sort, [&](std::size_t i, PyObject* part) {
    if (i >= known.items.size()) return false;
    if (known.is_left_out(i)) return true;
    if (part == nullptr) return known.items[i].absent();
    const Ref keep = Ref::borrow(part);
    return attempt([&] { return known.items[i].equals_value(part, stack); }, [] { return false; });
  });
}

bool StaticValue::equals(const StaticValue& other) const {
  if (absent() || other.absent()) return absent() && other.absent();
  const Ref value = other.value_for_comparison();
  const StaticValue keep = *this;  // user code may drop this one
  return value && keep.equals(value.get());
}

// ---- Callables in a value, over the life of their traces.

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

Ref StaticValue::value_for_comparison() const {
  return mode_ == Mode::kWeak || mode_ == Mode::kCallable ? weak_target(held_.get()) : held_;
}

Ref StaticValue::value() const {
  if (mode_ == Mode::kWeak || mode_ == Mode::kCallable) return weak_target(held_.get());
  return mutable_ ? copied(held_.get()) : held_;
}

bool StaticValue::keeps_alive() const noexcept {
  return (mode_ == Mode::kHeld || mode_ == Mode::kPointer) && PyObject_GC_IsTracked(held_.get()) != 0;
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
