#include "static_key/static_form.h"

#include <string_view>

#include "base/python_hooks.h"
#include "base/stack_room.h"

namespace partax {
namespace {

// A built-in container, and the form of its instances and of those of subclasses without a == of their own.
struct Container {
  PyTypeObject* type;
  Form form;
};
const Container kContainers[] = {
    {&PyTuple_Type, Form::kTuple}, {&PyList_Type, Form::kList},           {&PyDict_Type, Form::kDict},
    {&PySet_Type, Form::kSet},     {&PyFrozenSet_Type, Form::kFrozenSet}, {&PyByteArray_Type, Form::kByteArray},
    {&PyODict_Type, Form::kDict},
};

bool is_compared_as(PyTypeObject* type, PyTypeObject* base) noexcept {
  return type->tp_richcompare == base->tp_richcompare && type->tp_hash == base->tp_hash;
}

template <typename Number>
std::string_view bits_of(const Number& number) noexcept {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

}  // namespace

void check_depth() {
  if (stack_reserve().is_free()) return;
  throw WalkError::diagnosed(PyExc_RecursionError, "a static value is nested too deeply or contains itself");
}

Form form_of(PyObject* value) {
  PyTypeObject* type = Py_TYPE(value);
  if (type == &PyFloat_Type) return Form::kFloat;
  if (type == &PyComplex_Type) return Form::kComplex;
  if (is_plain(value)) return Form::kAtom;
  if (type == &PyFunction_Type || PyMethod_Check(value)) return Form::kCallable;
  for (const Container& container : kContainers) {
    if (type == container.type) return container.form;
  }
  if (type == &PySlice_Type || type == &PyRange_Type) return Form::kSlice;
  const TypeInfo& info = TypeTable::instance().find(value);
  if (info.kind == Kind::kStaticLeaf) {
    if (info.sort == LeafSort::kNumpyScalar) return Form::kNumpyScalar;
    if (info.sort >= LeafSort::kJaxArray && info.sort <= LeafSort::kNumpyArray) return Form::kArray;
  }
  if (info.traits.compared) return Form::kFrozenDataclass;
  if (callable_sort(value) != CallableSort::kNone) return Form::kCallable;
  for (const Container& container : kContainers) {
    if (PyType_IsSubtype(type, container.type) && is_compared_as(type, container.type)) return container.form;
  }
  return is_compared_as(type, &PyBaseObject_Type) ? Form::kIdentity : Form::kGeneric;
}

[[noreturn]] void refuse_array(PyObject* value) {
  WalkError error = WalkError::diagnosed(
      PyExc_TypeError, "found an array (" + type_name(value) +
                           ") as a static value, expected a value that can be hashed; make the field dynamic, or store "
                           "a tuple of Python numbers instead");
  error.mark("is_of_static_array");  // which `partax.equinox.accelerate` looks for
  throw error;
}

Py_hash_t own_hash(PyObject* value, Unhashable unhashable) {
  const Py_hash_t hash = PyObject_Hash(value);
  if (hash != -1) return hash;
  if (unhashable == Unhashable::kCompare && Py_TYPE(value)->tp_hash == PyObject_HashNotImplemented) {
    forgive();
    return -1;
  }
  throw WalkError::diagnosed(
      PyExc_TypeError,
      "found a static value of type `" + type_name(value) +
          "` that cannot be hashed, expected arrays (traced) or values with `__hash__` and "
          "`__eq__` (static); give the class a hash, as by `@dataclass(frozen=True)`, or make it a pytree node");
}

bool equal_atoms(PyObject* left, PyObject* right, Form form, Py_hash_t hash) {
  switch (form) {
    case Form::kIdentity:
      return left == right;
    case Form::kFloat:
      return bits_of(PyFloat_AS_DOUBLE(left)) == bits_of(PyFloat_AS_DOUBLE(right));
    case Form::kComplex:
      return bits_of(PyComplex_AsCComplex(left)) == bits_of(PyComplex_AsCComplex(right));
    case Form::kArray:
      refuse_array(right);
    default:
      break;
  }
  if (form == Form::kGeneric) {
    if (const Ref name = TypeTable::instance().find(right).traits.equal_by) {
      const auto content = [&](PyObject* of) { return Ref::checked(PyObject_GetAttr(of, name.get())); };
      return are_equal(content(left).get(), content(right).get());
    }
    if (hash != -1 && own_hash(right, Unhashable::kRefuse) != hash) return false;
  }
  const int equal = PyObject_RichCompareBool(left, right, Py_EQ);
  if (equal < 0) {
    throw WalkError::diagnosed(PyExc_TypeError, "comparing static values of type `" + type_name(right) +
                                                    "` with `==` raised an exception, expected True or False; mend "
                                                    "`__eq__`, or make the value an array");
  }
  return equal == 1;
}

Ref copied(PyObject* value) {
  if (PyByteArray_CheckExact(value)) return Ref::checked(PyByteArray_FromObject(value));
  if (Py_IS_TYPE(value, &PySet_Type)) return Ref::checked(PySet_New(value));
  const bool is_dict = PyDict_CheckExact(value), is_tuple = PyTuple_CheckExact(value);
  if (!is_dict && !is_tuple && !PyList_CheckExact(value)) return Ref::borrow(value);
  check_depth();
  std::vector<Ref> items;
  bool is_same = true;
  each_item(value, form_of(value), [&](const Ref& item) {
    const bool is_key = is_dict && items.size() % 2 == 0;
    items.push_back(is_key ? item : copied(item.get()));
    is_same = is_same && items.back().get() == item.get();
  });
  if (is_tuple) return is_same ? Ref::borrow(value) : tuple_of(std::move(items));
  if (!is_dict) return list_of(std::move(items));
  Ref copy = Ref::checked(PyDict_New());
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    checked_int(PyDict_SetItem(copy.get(), items[i].get(), items[i + 1].get()));
  }
  return copy;
}

bool holds_mutable(PyObject* value) {
  const Form form = form_of(value);
  if (is_mutable_form(form)) return true;
  if (form != Form::kTuple && form != Form::kFrozenDataclass) return false;
  check_depth();
  bool has_any = false;
  each_item(value, form, [&](const Ref& item) { has_any = has_any || (item && holds_mutable(item.get())); });
  return has_any;
}

namespace {

std::size_t pointer_hash(const void* pointer) noexcept {
  return mix(0x51ED270B, reinterpret_cast<std::size_t>(pointer));
}

std::size_t hash_of_part(PyObject* value, Unhashable unhashable, Callables callables);

// Equal for all callables that may be the same: of what one holds all may change.
std::size_t hash_callable(PyObject* value, std::size_t seed, Callables callables) {
  const bool is_method = PyMethod_Check(value) != 0;
  if (is_method && TypeTable::instance().find(PyMethod_GET_SELF(value)).kind != Kind::kStaticLeaf) {
    // A tree with arrays is refused, with the path of the array.
    below([] { return std::string(".__self__"); },
          [&] { hash_of_part(PyMethod_GET_SELF(value), Unhashable::kRefuse, callables); });
  }
  if (callables == Callables::kByIdentity) {
    return mix(seed, pointer_hash(is_method ? PyMethod_GET_SELF(value) : value));
  }
  const CallableSort sort = callable_sort(value);
  if (sort == CallableSort::kFunction) {
    const Ref code_object = code_of(value);
    const auto* code = reinterpret_cast<PyCodeObject*>(code_object.get());
    seed = mix(seed, static_cast<std::size_t>(own_hash(code->co_qualname, Unhashable::kRefuse)));
    return mix(seed, static_cast<std::size_t>(code->co_firstlineno));
  }
  static Name wrapped_name("__wrapped__");  // which a copy may lack
  Ref inner;
  if (is_method) inner = Ref::borrow(PyMethod_GET_FUNCTION(value));
  if (sort == CallableSort::kPartial) inner = attribute(value, "func");
  if (sort == CallableSort::kWrapper) inner = attribute(value, "_function");
  if (sort == CallableSort::kJitted) inner = optional_attribute(value, wrapped_name.get());
  const bool is_callable = inner && form_of(inner.get()) == Form::kCallable;
  return is_callable ? mix(seed, hash_of_part(inner.get(), Unhashable::kRefuse, callables)) : seed;
}

std::size_t hash_of_part(PyObject* value, Unhashable unhashable, Callables callables) {
  check_depth();
  const Form form = form_of(value);
  const std::size_t seed = pointer_hash(Py_TYPE(value));
  if (is_composite(form)) {
    std::size_t combined = seed;
    each_item(value, form, [&](const Ref& item) {
      combined = mix(combined, item ? hash_of_part(item.get(), unhashable, callables) : 0);
    });
    return combined;
  }
  switch (form) {
    case Form::kIdentity:
      return mix(seed, pointer_hash(value));
    case Form::kCallable:
      return hash_callable(value, seed, callables);
    case Form::kFloat:
      return mix(seed, std::hash<std::string_view>()(bits_of(PyFloat_AS_DOUBLE(value))));
    case Form::kComplex:
      return mix(seed, std::hash<std::string_view>()(bits_of(PyComplex_AsCComplex(value))));
    case Form::kArray:
      refuse_array(value);
    default:
      return mix(seed, static_cast<std::size_t>(own_hash(value, unhashable)));
  }
}

}  // namespace

std::size_t static_hash(PyObject* value, Unhashable unhashable, Callables callables) {
  return reading([&] { return hash_of_part(value, unhashable, callables); }, kComparing);
}

}  // namespace partax
