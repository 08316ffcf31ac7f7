#include "static_value.h"

#include <algorithm>
#include <cstring>

#include "node_kind.h"

namespace partax {
namespace {

// How a value is compared.
enum class Form : std::uint8_t {
  kIdentity,
  kAtom,  // built-in value types with a == of their own that runs no user code
  kFloat,
  kComplex,
  kNumpyScalar,
  kTuple,
  kFrozenSet,
  kList,
  kDict,
  kSet,
  kByteArray,
  kMethod,
  kFrozenDataclass,
  kTreedef,
  kArray,  // refused
  kGeneric,
};

struct DepthGuard {
  explicit DepthGuard(int& depth) : depth_(depth) {
    if (++depth_ > kMaxDepth) {
      --depth_;
      throw WalkError::diagnosed(PyExc_RecursionError, "a static value is nested too deeply or contains itself");
    }
  }
  ~DepthGuard() { --depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;
  int& depth_;
};

thread_local int static_depth = 0;

bool compares_like(PyTypeObject* type, PyTypeObject& base) noexcept {
  return type->tp_richcompare == base.tp_richcompare;
}

Form form_of(PyObject* value) {
  PyTypeObject* type = Py_TYPE(value);
  if (type == &PyUnicode_Type || type == &PyLong_Type || type == &PyBool_Type || value == Py_None ||
      type == &PyBytes_Type || type == &PyEllipsis_Type) {
    return Form::kAtom;
  }
  if (type == &PyFunction_Type || type == &PyType_Type) return Form::kIdentity;
  if (PyTuple_Check(value) && compares_like(type, PyTuple_Type)) return Form::kTuple;
  if (type == &PyFloat_Type) return Form::kFloat;
  if (type == &PyComplex_Type) return Form::kComplex;
  if (PyFrozenSet_Check(value)) return Form::kFrozenSet;
  if (PyList_Check(value)) return Form::kList;
  if (PyDict_Check(value)) return Form::kDict;
  if (PySet_Check(value)) return Form::kSet;
  if (PyByteArray_Check(value)) return Form::kByteArray;
  if (PyMethod_Check(value)) return Form::kMethod;
  const TypeInfo& info = TypeTable::instance().find(value);
  if (info.kind == Kind::kStaticLeaf) {
    switch (info.sort) {
      case LeafSort::kJaxArray:
      case LeafSort::kTracer:
      case LeafSort::kNumpyArray:
        return Form::kArray;
      case LeafSort::kNumpyScalar:
        return Form::kNumpyScalar;
      default:
        break;
    }
  }
  if (info.is_frozen_dataclass) return Form::kFrozenDataclass;
  if (PyFloat_Check(value) && compares_like(type, PyFloat_Type)) return Form::kFloat;
  if (PyComplex_Check(value) && compares_like(type, PyComplex_Type)) return Form::kComplex;
  if (type->tp_richcompare == PyBaseObject_Type.tp_richcompare && type->tp_hash == PyBaseObject_Type.tp_hash) {
    return Form::kIdentity;
  }
  if (hooks().treedef_type && reinterpret_cast<PyObject*>(type) == hooks().treedef_type.get()) return Form::kTreedef;
  return Form::kGeneric;
}

[[noreturn]] void refuse_array(PyObject* value) {
  throw WalkError::diagnosed(
      PyExc_TypeError, "found an array (" + type_name(value) +
                           ") as a static value, expected a value that can be hashed; make the field dynamic, or store "
                           "a tuple of Python numbers instead");
}

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

Py_hash_t own_hash(PyObject* value, Unhashable unhashable) {
  const Py_hash_t hash = PyObject_Hash(value);
  if (hash != -1) return hash;
  if (unhashable == Unhashable::kCompare && Py_TYPE(value)->tp_hash == PyObject_HashNotImplemented) {
    PyErr_Clear();
    return -1;
  }
  throw WalkError::diagnosed(PyExc_TypeError,
                             "found a static value of type `" + type_name(value) +
                                 "` that cannot be hashed, expected arrays (traced) or values with `__hash__` and "
                                 "`__eq__` (static); give the type a hash, or make it a pytree node");
}

Ref numpy_bytes(PyObject* scalar) { return Ref::checked(PyObject_CallMethod(scalar, "tobytes", nullptr)); }

// The attribute of a frozen dataclass, or empty where the instance lacks it.
Ref field(PyObject* value, PyObject* name) {
  Ref found = Ref::steal(PyObject_GenericGetAttr(value, name));
  if (!found) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) throw PythonError{};
    PyErr_Clear();
  }
  return found;
}

// The parts of a composite value as (segment-less) list; segments are only made for errors, by `describe`.
template <typename Visit>
void each_item(PyObject* value, Form form, Visit&& visit) {
  const auto located = [&](const Ref& item, auto&& segment) {
    try {
      visit(item);
    } catch (WalkError& error) {
      error.prepend(segment());
      throw;
    }
  };
  switch (form) {
    case Form::kTuple:
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); ++i) {
        located(Ref::borrow(PyTuple_GET_ITEM(value, i)), [&] { return index_segment(i); });
      }
      break;
    case Form::kList:
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(value); ++i) {
        located(Ref::borrow(PyList_GET_ITEM(value, i)), [&] { return index_segment(i); });
      }
      break;
    case Form::kDict: {
      Ref items = Ref::checked(PyDict_Items(value));
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); ++i) {
        PyObject* pair = PyList_GET_ITEM(items.get(), i);
        const auto segment = [&] { return key_segment(PyTuple_GET_ITEM(pair, 0)); };
        located(Ref::borrow(PyTuple_GET_ITEM(pair, 0)), segment);
        located(Ref::borrow(PyTuple_GET_ITEM(pair, 1)), segment);
      }
      break;
    }
    case Form::kSet:
    case Form::kFrozenSet: {
      Ref items = Ref::checked(PySequence_List(value));
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); ++i) {
        located(Ref::borrow(PyList_GET_ITEM(items.get(), i)), [] { return std::string("{...}"); });
      }
      break;
    }
    case Form::kMethod:
      visit(Ref::borrow(PyMethod_GET_FUNCTION(value)));
      located(Ref::borrow(PyMethod_GET_SELF(value)), [] { return std::string(".__self__"); });
      break;
    case Form::kFrozenDataclass: {
      const TypeInfoPtr info = TypeTable::instance().shared(TypeTable::instance().find(value));
      for (const Ref& name : info->frozen_fields) {
        located(field(value, name.get()), [&] { return attribute_segment(name.get()); });
      }
      break;
    }
    default:
      break;
  }
}

bool is_composite(Form form) noexcept {
  switch (form) {
    case Form::kTuple:
    case Form::kFrozenSet:
    case Form::kList:
    case Form::kDict:
    case Form::kSet:
    case Form::kMethod:
    case Form::kFrozenDataclass:
      return true;
    default:
      return false;
  }
}

bool is_unordered(Form form) noexcept { return form == Form::kSet || form == Form::kFrozenSet; }

bool is_mutable_form(Form form) noexcept {
  return form == Form::kList || form == Form::kDict || form == Form::kSet || form == Form::kByteArray;
}

// == of two objects of one type that is not composite. `hash` is that of `left`, or -1 if it has none.
bool equal_atoms(PyObject* left, PyObject* right, Form form, Py_hash_t hash) {
  switch (form) {
    case Form::kIdentity:
      return left == right;
    case Form::kFloat: {
      const double a = PyFloat_AS_DOUBLE(left), b = PyFloat_AS_DOUBLE(right);
      return std::memcmp(&a, &b, sizeof a) == 0;
    }
    case Form::kComplex: {
      const Py_complex a = PyComplex_AsCComplex(left), b = PyComplex_AsCComplex(right);
      return std::memcmp(&a, &b, sizeof a) == 0;
    }
    case Form::kNumpyScalar: {
      Ref left_dtype = Ref::checked(PyObject_GetAttrString(left, "dtype"));
      Ref right_dtype = Ref::checked(PyObject_GetAttrString(right, "dtype"));
      if (checked_int(PyObject_RichCompareBool(left_dtype.get(), right_dtype.get(), Py_EQ)) == 0) return false;
      return checked_int(PyObject_RichCompareBool(numpy_bytes(left).get(), numpy_bytes(right).get(), Py_EQ)) == 1;
    }
    case Form::kArray:
      refuse_array(right);
    default:
      break;
  }
  if (form == Form::kGeneric || form == Form::kTreedef) {
    const Py_hash_t other = own_hash(right, hash == -1 ? Unhashable::kCompare : Unhashable::kRefuse);
    if (other != hash) return false;
  }
  Ref result = Ref::steal(PyObject_RichCompare(left, right, Py_EQ));
  if (!result) {
    throw WalkError::diagnosed(PyExc_TypeError, "comparing static values of type `" + type_name(right) +
                                                    "` with `==` raised an exception, expected True or False; mend "
                                                    "`__eq__`, or make the value an array");
  }
  if (result.get() == Py_True) {
    if (form != Form::kTreedef) return true;
    // Treedefs compare aux data loosely (1 == True); their text does not.
    Ref left_text = Ref::checked(PyObject_Str(left)), right_text = Ref::checked(PyObject_Str(right));
    return checked_int(PyObject_RichCompareBool(left_text.get(), right_text.get(), Py_EQ)) == 1;
  }
  if (result.get() == Py_False) return false;
  if (std::strcmp(Py_TYPE(result.get())->tp_name, "numpy.bool") == 0 ||
      std::strcmp(Py_TYPE(result.get())->tp_name, "numpy.bool_") == 0) {
    return checked_int(PyObject_IsTrue(result.get())) == 1;
  }
  throw WalkError::diagnosed(PyExc_TypeError, "comparing static values of type `" + type_name(right) +
                                                  "` with `==` gave a `" + type_name(result.get()) +
                                                  "`, expected True or False; static values must compare to a bool");
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

std::size_t hash_of(PyObject* value, Unhashable unhashable) {
  const DepthGuard guard(static_depth);
  const Form form = form_of(value);
  const std::size_t seed = pointer_hash(Py_TYPE(value));
  if (is_composite(form)) {
    std::size_t combined = seed;
    each_item(value, form, [&](const Ref& item) {
      const std::size_t hash = item ? hash_of(item.get(), unhashable) : 0;
      // Order matters, but for sets, whose iteration order is not part of their value.
      combined = is_unordered(form) ? combined + mix(3, hash) : mix(combined, hash);
    });
    return combined;
  }
  switch (form) {
    case Form::kIdentity:
      return mix(seed, pointer_hash(value));
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

// A copy of a mutable built-in container, or of a tuple that holds such; else the value itself. Subclasses are left
// as they are: their copy() need not keep the type.
Ref copied(PyObject* value) {
  const DepthGuard guard(static_depth);
  if (PyByteArray_CheckExact(value)) return Ref::checked(PyByteArray_FromObject(value));
  if (Py_IS_TYPE(value, &PySet_Type)) return Ref::checked(PySet_New(value));
  if (PyList_CheckExact(value)) {
    Ref copy = Ref::checked(PyList_GetSlice(value, 0, PyList_GET_SIZE(value)));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(copy.get()); ++i) {
      Ref item = copied(PyList_GET_ITEM(copy.get(), i));
      checked_int(PyList_SetItem(copy.get(), i, item.release()));
    }
    return copy;
  }
  if (PyDict_CheckExact(value)) {
    Ref copy = Ref::checked(PyDict_Copy(value));
    Ref items = Ref::checked(PyDict_Items(copy.get()));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); ++i) {
      PyObject* pair = PyList_GET_ITEM(items.get(), i);
      Ref item = copied(PyTuple_GET_ITEM(pair, 1));
      checked_int(PyDict_SetItem(copy.get(), PyTuple_GET_ITEM(pair, 0), item.get()));
    }
    return copy;
  }
  if (PyTuple_CheckExact(value)) {
    const Py_ssize_t size = PyTuple_GET_SIZE(value);
    Ref copy = Ref::checked(PyTuple_New(size));
    bool same = true;
    for (Py_ssize_t i = 0; i < size; ++i) {
      Ref item = copied(PyTuple_GET_ITEM(value, i));
      same = same && item.get() == PyTuple_GET_ITEM(value, i);
      PyTuple_SET_ITEM(copy.get(), i, item.release());
    }
    return same ? Ref::borrow(value) : copy;
  }
  return Ref::borrow(value);
}

bool holds_mutable(PyObject* value) {
  const DepthGuard guard(static_depth);
  const Form form = form_of(value);
  if (is_mutable_form(form)) return true;
  if (form != Form::kTuple && form != Form::kFrozenDataclass) return false;
  bool found = false;
  each_item(value, form, [&](const Ref& item) { found = found || (item && holds_mutable(item.get())); });
  return found;
}

}  // namespace

std::size_t static_hash(PyObject* value, Unhashable unhashable) {
  return locating([&] { return hash_of(value, unhashable); });
}

bool is_weakly_held(PyObject* value) {
  if (form_of(value) != Form::kIdentity) return false;
  PyTypeObject* type = Py_TYPE(value);
  return PyType_SUPPORTS_WEAKREFS(type);
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

// Makes sealed values.
class Sealer {
 public:
  explicit Sealer(PyObject* on_death) : on_death_(on_death) {}

  StaticValue seal(PyObject* value) const {
    const DepthGuard guard(static_depth);
    const Form form = form_of(value);
    StaticValue result;
    if (is_composite(form)) {
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
      return result;
    }
    if (form == Form::kIdentity && PyType_SUPPORTS_WEAKREFS(Py_TYPE(value))) {
      result.mode_ = StaticValue::Mode::kWeak;
      result.held_ = Ref::checked(PyWeakref_NewRef(value, on_death_));
      return result;
    }
    result.mode_ = StaticValue::Mode::kHeld;
    result.held_ = form == Form::kByteArray ? copied(value) : Ref::borrow(value);
    result.mutable_ = form == Form::kByteArray;
    if (form == Form::kGeneric || form == Form::kTreedef) result.hash_ = own_hash(value, Unhashable::kCompare);
    return result;
  }

 private:
  Ref hold_type(PyTypeObject* type) const {
    auto* object = reinterpret_cast<PyObject*>(type);
    if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) return Ref::borrow(object);
    return Ref::checked(PyWeakref_NewRef(object, on_death_));
  }

  PyObject* on_death_;
};

StaticValue StaticValue::sealed(PyObject* on_death) const {
  if (mode_ != Mode::kHeld || composite_ != nullptr) return *this;
  return locating([&] { return Sealer(on_death).seal(held_.get()); });
}

bool StaticValue::equals(PyObject* other) const {
  switch (mode_) {
    case Mode::kAbsent:
      return false;
    case Mode::kWeak:
      return weakly_is(held_.get(), other);
    case Mode::kHeld:
      if (held_.get() == other && !mutable_) return true;
      if (composite_ == nullptr) {
        if (Py_TYPE(held_.get()) != Py_TYPE(other)) return false;
        return locating([&] { return equal_atoms(held_.get(), other, form_of(other), hash_); });
      }
      break;
    case Mode::kComposite:
      break;
  }
  if (Py_TYPE(other) != composite_->type) return false;
  const std::shared_ptr<const Composite> composite = composite_;  // user code below may drop this value
  return locating([&] {
    const DepthGuard guard(static_depth);
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
          if (taken[i] || !items[i].equals(item.get())) continue;
          taken[i] = equal = true;
        }
      });
    } else {
      each_item(other, form, [&](const Ref& item) {
        const std::size_t i = seen++;
        if (!equal) return;
        equal = i < items.size() && (item ? items[i].equals(item.get()) : items[i].absent());
      });
    }
    return equal && seen == items.size();
  });
}

bool StaticValue::equals(const StaticValue& other) const {
  if (absent() || other.absent()) return absent() && other.absent();
  Ref value = other.mode_ == Mode::kWeak ? weak_target(other.held_.get()) : other.held_;
  return value && equals(value.get());
}

Ref StaticValue::value() const {
  if (mode_ == Mode::kWeak) return weak_target(held_.get());
  return mutable_ ? copied(held_.get()) : held_;
}

int StaticValue::traverse(visitproc visit, void* arg) const {
  Py_VISIT(held_.get());
  // A composite may be shared with a copy of this value, so its references are not this object's to report.
  return 0;
}

}  // namespace partax
