#include "types/predicates.h"

#include <unordered_map>

#include "base/python_hooks.h"
#include "types/type_table.h"

namespace partax {
namespace {

// Whether the dtype of an array is floating or complex: one call of Python for each dtype object.
bool has_inexact_dtype(PyObject* array) {
  static auto* const answers = new std::unordered_map<PyObject*, std::pair<Ref, bool>>();
  const Ref dtype = attribute(array, "dtype");
  const auto answer = answers->find(dtype.get());
  if (answer != answers->end()) return answer->second.second;
  const bool is_inexact = python::is_inexact(dtype).get() == Py_True;
  if (answers->size() < 4096) answers->emplace(dtype.get(), std::make_pair(dtype, is_inexact));
  return is_inexact;
}

template <Predicate predicate>
PyObject* call(PyObject*, PyObject* object) noexcept {
  return guarded<PyObject*>(nullptr, [&] { return PyBool_FromLong(holds(predicate, object)); });
}

PyMethodDef methods[] = {
    {"is_array", call<Predicate::kIsArray>, METH_O,
     "is_array(element, /)\n--\n\nReturn whether `element` is an array.\n\n"
     "Example:\n  >>> partax.is_array(jnp.ones(2)), partax.is_array(1.0)\n  (True, False)\n\n"
     "Args:\n  element: any object.\n\nReturns:\n"
     "  True for a JAX array (a traced one and a typed PRNG key included), a NumPy array or a NumPy scalar."},
    {"is_array_like", call<Predicate::kIsArrayLike>, METH_O,
     "is_array_like(element, /)\n--\n\nReturn whether `element` is an array or a number that JAX takes for one.\n\n"
     "Example:\n  >>> partax.is_array_like(1.0), partax.is_array_like('a')\n  (True, False)\n\n"
     "Args:\n  element: any object.\n\nReturns:\n"
     "  True for all that `is_array` takes, Python numbers, and objects with `__jax_array__`."},
    {"is_inexact_array", call<Predicate::kIsInexactArray>, METH_O,
     "is_inexact_array(element, /)\n--\n\nReturn whether `element` is an array of floating or complex numbers.\n\n"
     "Example:\n  >>> partax.is_inexact_array(jnp.ones(2)), partax.is_inexact_array(jnp.arange(2))\n  (True, False)\n\n"
     "Args:\n  element: any object.\n\nReturns:\n  True for arrays (see `is_array`) of a floating or complex dtype."},
    {"is_inexact_array_like", call<Predicate::kIsInexactArrayLike>, METH_O,
     "is_inexact_array_like(element, /)\n--\n\n"},
};

}  // namespace

bool holds(Predicate predicate, PyObject* object) {
  static Name conversion_name("__jax_array__");
  const bool inexact = predicate == Predicate::kIsInexactArray || predicate == Predicate::kIsInexactArrayLike;
  const bool like = predicate == Predicate::kIsArrayLike || predicate == Predicate::kIsInexactArrayLike;
  switch (TypeTable::instance().find(object).sort) {
    case LeafSort::kTracer:
      return is_jax_array(object) && (!inexact || has_inexact_dtype(object));
    case LeafSort::kJaxArray:
    case LeafSort::kNumpyArray:
    case LeafSort::kNumpyScalar:
      return !inexact || has_inexact_dtype(object);
    case LeafSort::kBoolOrInt:
      return like && !inexact;
    case LeafSort::kFloatOrComplex:
      return like;
    case LeafSort::kRef:
    case LeafSort::kAbstract:
    case LeafSort::kOther:
      break;
  }
  if (!like) return false;
  const Ref conversion = optional_attribute(object, conversion_name.get());
  if (!conversion || !inexact) return static_cast<bool>(conversion);
  return has_inexact_dtype(Ref::checked(PyObject_CallNoArgs(conversion.get())).get());
}

void add_predicates(PyObject* module) {
  const Ref home = Ref::checked(PyUnicode_InternFromString("partax"));
  for (PyMethodDef& method : methods) {
    const Ref function = Ref::checked(PyCFunction_NewEx(&method, nullptr, home.get()));
    checked_int(PyModule_AddObjectRef(module, method.ml_name, function.get()));
  }
}

int predicate_of(PyObject* filter) noexcept {
  for (int i = 0; hooks.predicates && i < 3; ++i) {
    if (PyTuple_GET_ITEM(hooks.predicates.get(), i) == filter) return i;
  }
  return -1;
}

}  // namespace partax
