#include "static_value.h"

#include <algorithm>

namespace partax {
namespace {

// Callables inside callables, and items of one container inside a callable: beyond these, identity decides.
constexpr std::size_t kMaxCallableDepth = 100;
constexpr std::size_t kMaxItems = 1000;

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

// A failed C API call inside a comparison keeps its exception and gets the path as a note.
template <typename Body>
auto locating(Body&& body) {
  try {
    return body();
  } catch (const PythonError&) {
    throw WalkError::from_user_code("comparing or hashing the static value");
  }
}

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

bool is_too_long(PyObject* value, Form form) {
  if (!is_composite(form) || form == Form::kMethod || form == Form::kFrozenDataclass) return false;
  const Py_ssize_t size = PyObject_Size(value);
  if (size < 0) forgive();
  return size < 0 || size > static_cast<Py_ssize_t>(kMaxItems);
}

// One walk through a static value: which callables it met, in order, so that those that refer to each other end.
struct Trail {
  std::vector<Ref> met;
  std::size_t depth = 0;  // inside how many callables
  bool alone = false;     // where a later walk may come in another order or not at all: identity decides
  Callables callables = Callables::kByStructure;

  std::ptrdiff_t number_of(PyObject* callable) const noexcept {
    for (std::size_t i = 0; i < met.size(); ++i) {
      if (met[i].get() == callable) return static_cast<std::ptrdiff_t>(i);
    }
    return -1;
  }
  bool by_identity(PyObject* callable) const noexcept {
    return callables == Callables::kByIdentity || alone || depth >= kMaxCallableDepth || is_unsteady(callable);
  }
};

struct Inside {
  explicit Inside(std::size_t& depth) : depth_(depth) { ++depth_; }
  ~Inside() { --depth_; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  std::size_t& depth_;
};

struct Alone {
  Alone(Trail& trail, bool alone) : trail_(trail), before_(trail.alone) { trail.alone = before_ || alone; }
  ~Alone() { trail_.alone = before_; }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;
  Trail& trail_;
  bool before_;
};

std::size_t hash_of(PyObject* value, Unhashable unhashable, Trail& trail);

// Of what may change without a new key (attributes, containers, what the function itself assigns) only the type counts.
std::size_t hash_callable(PyObject* value, std::size_t seed, Trail& trail) {
  if (trail.by_identity(value)) return mix(seed, pointer_hash(value));
  const std::ptrdiff_t number = trail.number_of(value);
  if (number >= 0) return mix(seed, static_cast<std::size_t>(number));
  trail.met.push_back(Ref::borrow(value));
  const Inside inside(trail.depth);
  const CallableSort sort = callable_sort(value);
  const auto add = [&](PyObject* part) {
    const std::size_t mark = trail.met.size();
    seed = mix(seed, part == nullptr ? 0
                                     : attempt([&] { return hash_of(part, Unhashable::kRefuse, trail); },
                                               [&] {
                                                 trail.met.resize(mark);
                                                 return pointer_hash(part);
                                               }));
  };
  if (sort == CallableSort::kJitted) {
    const Ref wrapped = maybe_attribute(value, "__wrapped__");
    if (!wrapped) forgive();
    add(wrapped.get());
    return seed;
  }
  if (sort != CallableSort::kFunction) {
    const CallableParts parts(value, sort);
    for (std::size_t i = 0; i < parts.size(); ++i) add(parts[i].get());
    return seed;
  }
  const auto* function = reinterpret_cast<PyFunctionObject*>(value);
  const auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  seed = mix(seed, pointer_hash(function->func_globals));
  seed = mix(seed, static_cast<std::size_t>(code->co_firstlineno));
  add(code->co_filename);
  add(code->co_qualname);
  const std::vector<bool> assigned = own_records(value);
  std::vector<Ref> cells;  // user code may change the function meanwhile
  all_state(value, [&](std::size_t i, PyObject* part) {
    if (i < assigned.size() && !assigned[i]) cells.push_back(Ref::borrow(part));
    return i < assigned.size();
  });
  for (const Ref& cell : cells) add(cell.get());
  return seed;
}

std::size_t hash_of(PyObject* value, Unhashable unhashable, Trail& trail) {
  const DepthGuard guard;
  const Form form = form_of(value);
  const std::size_t seed = pointer_hash(Py_TYPE(value));
  if (trail.depth > 0) {
    if (is_mutable_form(form)) return seed;
    if (form == Form::kArray || is_bound_builtin(value) || is_too_long(value, form)) return pointer_hash(value);
    if (form == Form::kGeneric || form == Form::kTreedef) {
      return attempt([&] { return mix(seed, static_cast<std::size_t>(own_hash(value, Unhashable::kRefuse))); },
                     [&] { return pointer_hash(value); });
    }
  }
  if (is_composite(form)) {
    const Alone alone(trail, is_unordered(form));
    std::size_t combined = seed;
    each_item(value, form, [&](const Ref& item) {
      const std::size_t hash = item ? hash_of(item.get(), unhashable, trail) : 0;
      // Order matters, but for sets, whose iteration order is not part of their value.
      combined = is_unordered(form) ? combined + mix(3, hash) : mix(combined, hash);
    });
    return combined;
  }
  switch (form) {
    case Form::kIdentity:
      return mix(seed, pointer_hash(value));
    case Form::kCallable:
      return hash_callable(value, seed, trail);
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

struct StaticValue::Walk {
  Trail trail;
  std::vector<Ref>* changed = nullptr;  // collects callables that are the known objects in another state
  std::vector<Ref>* noting = nullptr;   // and those whose own records alone have changed
};

std::size_t static_hash(PyObject* value, Unhashable unhashable, Callables callables) {
  Trail trail;
  trail.callables = callables;
  return locating([&] { return hash_of(value, unhashable, trail); });
}

bool is_weakly_held(PyObject* value) {
  const Form form = form_of(value);
  return (form == Form::kIdentity || form == Form::kCallable) && PyType_SUPPORTS_WEAKREFS(Py_TYPE(value));
}

StaticValue StaticValue::loose(Ref value) noexcept {
  StaticValue result;
  if (!value) return result;
  result.mode_ = Mode::kHeld;
  result.held_ = std::move(value);
  return result;
}

StaticValue StaticValue::handed_out(bool weakly) const {
  if (mode_ != Mode::kHeld) return *this;
  StaticValue result;
  result.mode_ = weakly ? Mode::kWeak : Mode::kHeld;
  result.held_ = weakly ? Ref::checked(PyWeakref_NewRef(held_.get(), nullptr)) : held_;
  result.mutable_ = !weakly && holds_mutable(held_.get());
  if (result.mutable_) result.held_ = copied(held_.get());
  return result;
}

void StaticValue::own() {
  if (mode_ != Mode::kHeld || !holds_mutable(held_.get())) return;
  held_ = copied(held_.get());
  mutable_ = true;
}

StaticValue StaticValue::as_weak() const {
  StaticValue result;
  result.mode_ = Mode::kWeak;
  result.held_ = held_;
  return result;
}

// Makes sealed values.
class Sealer {
 public:
  Sealer(PyObject* on_death, Callables callables) : on_death_(on_death) { trail_.callables = callables; }

  StaticValue seal(PyObject* value) {
    const DepthGuard guard;
    const Form form = form_of(value);
    if (form == Form::kCallable) return seal_callable(value);
    if (trail_.depth > 0 && (form == Form::kArray || is_bound_builtin(value) || is_too_long(value, form))) {
      return unproven(value);
    }
    StaticValue result;
    if (is_composite(form)) {
      const Alone alone(trail_, is_unordered(form));
      auto composite = std::make_shared<StaticValue::Composite>();
      composite->type = Py_TYPE(value);
      composite->type_ref = hold_type(Py_TYPE(value));
      bool reusable = !is_mutable_form(form);
      each_item(value, form, [&](const Ref& item) {
        composite->items.push_back(item ? seal(item.get()) : StaticValue());
        reusable = reusable && composite->items.back().identity() != nullptr;
      });
      // A value that is immutable all the way down and holds nothing weakly is also known by its pointer.
      result.mode_ = StaticValue::Mode::kComposite;
      if (reusable && !PyWeakref_CheckRef(composite->type_ref.get())) {
        result.mode_ = StaticValue::Mode::kHeld;
        result.held_ = Ref::borrow(value);
      }
      result.composite_ = std::move(composite);
      // What a wrapper remembers of its callable may keep it alive: then its pointer tells that it is unchanged.
      const bool is_remembered = on_death_ == nullptr && trail_.callables == Callables::kWrapped;
      if (is_remembered && !result.holds_callables() && !holds_mutable(value)) result.held_ = Ref::borrow(value);
      return result;
    }
    if (form == Form::kIdentity && PyType_SUPPORTS_WEAKREFS(Py_TYPE(value))) return weak(value);
    result.mode_ = StaticValue::Mode::kHeld;
    result.held_ = form == Form::kByteArray ? copied(value) : Ref::borrow(value);
    result.mutable_ = form == Form::kByteArray;
    if (form == Form::kGeneric || form == Form::kTreedef) {
      if (trail_.depth == 0) {
        result.hash_ = own_hash(value, Unhashable::kCompare);
      } else {
        result.hash_ = attempt([&] { return own_hash(value, Unhashable::kRefuse); }, [] { return Py_hash_t{-1}; });
        if (result.hash_ == -1) return unproven(value);
      }
    }
    return result;
  }

 private:
  StaticValue seal_callable(PyObject* value) {
    StaticValue result;
    const std::ptrdiff_t number = trail_.number_of(value);
    if (trail_.by_identity(value) || !PyType_SUPPORTS_WEAKREFS(Py_TYPE(value))) return weak(value);
    if (number >= 0) {
      result.mode_ = StaticValue::Mode::kVisited;
      result.hash_ = number;
      result.held_ = Ref::checked(PyWeakref_NewRef(value, nullptr));
      return result;
    }
    trail_.met.push_back(Ref::borrow(value));
    const Inside inside(trail_.depth);
    const bool outer_proven = std::exchange(proven_, true);
    auto composite = std::make_shared<StaticValue::Composite>();
    composite->type = Py_TYPE(value);
    composite->type_ref = hold_type(Py_TYPE(value));
    const CallableSort sort = callable_sort(value);
    const CallableParts parts(value, sort);
    if (sort == CallableSort::kFunction) {
      composite->function = FunctionIdentity::of(value);
      composite->assigned = own_records(value);
      proven_ = static_cast<bool>(composite->function.anchor);
      // One with attributes may be called by another signature, which knows no defaults.
      composite->without_defaults =
          trail_.callables == Callables::kWrapped && trail_.met.size() == 1 && !parts[parts.num_state() - 1];
    }
    proven_ = proven_ && parts.known() && !is_noting(value);
    composite->num_state = parts.num_state();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      // A function with a log of its own is no other's like: what it notes while it is traced, it alone notes.
      const bool is_log = composite->is_own_record(i) && parts[i] && is_mutable_form(form_of(parts[i].get()));
      if ((!parts[i] && i < parts.num_cells()) || is_log) proven_ = false;
      const Alone alone(trail_, composite->is_own_record(i) || i >= parts.num_state());
      const bool kept = parts[i] && !composite->is_left_out(i);
      composite->items.push_back(kept ? seal_part(parts[i].get()) : StaticValue());
    }
    composite->shared = proven_;
    proven_ = outer_proven;
    result.mode_ = StaticValue::Mode::kCallable;
    result.held_ = Ref::checked(PyWeakref_NewRef(value, composite->shared ? nullptr : on_death_));
    result.composite_ = std::move(composite);
    return result;
  }

  StaticValue seal_part(PyObject* part) {
    const std::size_t mark = trail_.met.size();
    return attempt([&] { return seal(part); },
                   [&] {
                     trail_.met.resize(mark);
                     return unproven(part);
                   });
  }

  // What a callable holds and nothing but identity tells from others.
  StaticValue unproven(PyObject* value) {
    proven_ = false;
    return weak(value);
  }

  StaticValue weak(PyObject* value) const {
    StaticValue result;
    const bool weakly = PyType_SUPPORTS_WEAKREFS(Py_TYPE(value));
    result.mode_ = weakly ? StaticValue::Mode::kWeak : StaticValue::Mode::kPointer;
    result.held_ = weakly ? Ref::checked(PyWeakref_NewRef(value, on_death_)) : Ref::borrow(value);
    return result;
  }

  Ref hold_type(PyTypeObject* type) const {
    auto* object = reinterpret_cast<PyObject*>(type);
    if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) return Ref::borrow(object);
    return Ref::checked(PyWeakref_NewRef(object, on_death_));
  }

  PyObject* on_death_;
  Trail trail_;
  bool proven_ = true;  // of the callable that is being sealed
};

StaticValue StaticValue::sealed(PyObject* on_death, Callables callables) const {
  if (mode_ != Mode::kHeld || composite_ != nullptr) return *this;
  return locating([&] { return Sealer(on_death, callables).seal(held_.get()); });
}

bool StaticValue::equals(PyObject* other) const {
  Walk walk;
  return locating([&] { return equals(other, walk); });
}

bool StaticValue::equals(PyObject* other, Walk& walk) const {
  switch (mode_) {
    case Mode::kAbsent:
      return false;
    case Mode::kWeak:
      return weakly_is(held_.get(), other);
    case Mode::kPointer:
      return held_.get() == other;
    case Mode::kVisited:
      return static_cast<std::size_t>(hash_) < walk.trail.met.size() &&
             walk.trail.met[static_cast<std::size_t>(hash_)].get() == other;
    case Mode::kHeld:
      if (held_.get() == other && !mutable_) return true;
      if (composite_ == nullptr) {
        if (Py_TYPE(held_.get()) != Py_TYPE(other)) return false;
        return equal_atoms(held_.get(), other, form_of(other), hash_);
      }
      return equals_items(other, walk);
    case Mode::kComposite:
      return equals_items(other, walk);
    case Mode::kCallable:
      return equals_callable(other, walk);
  }
  return false;
}

bool StaticValue::equals_items(PyObject* other, Walk& walk) const {
  if (Py_TYPE(other) != composite_->type) return false;
  const std::shared_ptr<const Composite> composite = composite_;  // user code below may drop this value
  const DepthGuard guard;
  const Form form = form_of(other);
  const std::vector<StaticValue>& items = composite->items;
  std::size_t seen = 0;
  bool equal = true;
  if (is_unordered(form)) {
    std::vector<bool> taken(items.size(), false);
    each_item(other, form, [&](const Ref& item) {
      ++seen;
      if (!equal) return;
      equal = false;
      for (std::size_t i = 0; i < items.size() && !equal; ++i) {
        if (taken[i] || !items[i].equals(item.get(), walk)) continue;
        taken[i] = equal = true;
      }
    });
  } else {
    each_item(other, form, [&](const Ref& item) {
      const std::size_t i = seen++;
      if (!equal) return;
      equal = i < items.size() && (item ? items[i].equals(item.get(), walk) : items[i].absent());
    });
  }
  return equal && seen == items.size();
}

bool StaticValue::equals_callable(PyObject* other, Walk& walk) const {
  const std::shared_ptr<const Composite> composite = composite_;  // user code below may drop this value
  if (Py_TYPE(other) != composite->type) return false;
  walk.trail.met.push_back(Ref::borrow(other));
  const bool same = is_same_callable(other);
  if (!same && (!composite->shared || is_unsteady(other) || is_noting(other))) return false;
  const DepthGuard guard;
  const Inside inside(walk.trail.depth);
  const CallableSort sort = callable_sort(other);
  if (sort == CallableSort::kFunction && !composite->function.has_code_of(other)) return false;
  if (sort == CallableSort::kFunction && !same && !composite->function.has_globals_of(other)) return false;
  const CallableParts parts(other, sort);
  if (parts.size() != composite->items.size()) return false;
  const std::size_t already_changed = walk.changed == nullptr ? 0 : walk.changed->size();
  for (std::size_t i = 0; i < (same ? composite->num_state : parts.size()); ++i) {
    const bool is_record = same && composite->is_own_record(i);
    if (composite->is_left_out(i) || (is_record && walk.noting == nullptr)) continue;
    const StaticValue& item = composite->items[i];
    if (parts[i] ? item.equals_part(parts[i].get(), walk) : item.absent()) continue;
    if (is_record) {
      walk.noting->push_back(Ref::borrow(other));
      continue;
    }
    const bool mine = same && walk.changed != nullptr && walk.changed->size() == already_changed;
    if (mine) walk.changed->push_back(Ref::borrow(other));
    return false;
  }
  return true;
}

bool StaticValue::equals_part(PyObject* part, Walk& walk) const {
  return attempt([&] { return equals(part, walk); }, [] { return false; });
}

bool StaticValue::equals(const StaticValue& other) const {
  if (absent() || other.absent()) return absent() && other.absent();
  const Ref value = other.value_for_comparison();
  return value && equals(value.get());
}

// Reading the parts of a partial, or the fields of a dataclass, may run Python, which may drop the object that is asked
// about: the two that look into it hold it.
bool StaticValue::is_plainly(PyObject* other) const noexcept {
  switch (mode_) {
    case Mode::kHeld:
      return held_.get() == other && !mutable_;
    case Mode::kPointer:
      return held_.get() == other;
    case Mode::kWeak:
    case Mode::kVisited:  // its state is looked at where it was met first
      return weakly_is(held_.get(), other);
    case Mode::kComposite:
    case Mode::kCallable:
      if (mode_ == Mode::kComposite && held_ && held_.get() == other) return true;
      try {
        if (mode_ == Mode::kCallable && !is_same_callable(other)) return false;
        const Ref keep = Ref::borrow(other);
        return mode_ == Mode::kComposite ? has_plain_items(other) : has_plain_state(other);
      } catch (...) {
        set_python_error();
        PyErr_Clear();
        return false;
      }
    default:
      return false;
  }
}

bool StaticValue::has_plain_items(PyObject* container) const {
  const std::vector<StaticValue>& items = composite_->items;
  if (Py_TYPE(container) != composite_->type) return false;
  if (PyTuple_Check(container) || PyList_CheckExact(container)) {
    if (PySequence_Fast_GET_SIZE(container) != static_cast<Py_ssize_t>(items.size())) return false;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (static_cast<Py_ssize_t>(i) >= PySequence_Fast_GET_SIZE(container)) return false;  // it has shrunk meanwhile
      if (!items[i].is_plainly(PySequence_Fast_ITEMS(container)[i])) return false;
    }
    return true;
  }
  if (TypeTable::instance().find(container).is_frozen_dataclass) {
    const TypeInfoPtr info = TypeTable::instance().shared(TypeTable::instance().find(container));
    for (std::size_t i = 0; i < items.size(); ++i) {
      const Ref part = field(container, info->frozen_fields[i].get());
      if (part ? !items[i].is_plainly(part.get()) : !items[i].absent()) return false;
    }
    return true;
  }
  if (!PyDict_CheckExact(container) || 2 * PyDict_GET_SIZE(container) != static_cast<Py_ssize_t>(items.size())) {
    return false;
  }
  PyObject *key, *value;
  Py_ssize_t position = 0;
  for (std::size_t i = 0; PyDict_Next(container, &position, &key, &value) != 0; i += 2) {
    const Ref keep = Ref::borrow(value);
    if (!items[i].is_plainly(key) || !items[i + 1].is_plainly(value)) return false;
  }
  return true;
}

bool StaticValue::has_plain_state(PyObject* callable) const {
  const Composite& known = *composite_;
  const auto same = [&](std::size_t i, PyObject* part) {
    if (known.is_own_record(i) || known.is_left_out(i)) return true;
    if (i >= known.num_state) return false;
    return part == nullptr ? known.items[i].absent() : known.items[i].is_plainly(part);
  };
  switch (callable_sort(callable)) {
    case CallableSort::kFunction:
      return PyFunction_GET_CODE(callable) == known.function.code.get() && all_state(callable, same);
    case CallableSort::kPartial:
      return all_partial_state(callable, same);
    case CallableSort::kJitted:
      return true;  // jax.jit itself does not look at its function again
    case CallableSort::kWrapper:
      return same(0, wrapped_callable(callable).get());
    default:
      return false;
  }
}

bool StaticValue::holds_callables() const noexcept {
  if (mode_ == Mode::kCallable) return true;
  if (composite_ == nullptr) return false;
  const std::vector<StaticValue>& items = composite_->items;
  return std::any_of(items.begin(), items.end(), [](const StaticValue& item) { return item.holds_callables(); });
}

StaticValue::Changed StaticValue::changed_callables(PyObject* other) const {
  Changed found;
  Walk walk;
  walk.changed = &found.changed;
  walk.noting = &found.noting;
  locating([&] { return equals(other, walk); });
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
