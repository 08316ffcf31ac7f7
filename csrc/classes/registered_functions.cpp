#include "classes/registered_functions.h"

#include "base/error_path.h"
#include "base/python_hooks.h"
#include "classes/instance_fields.h"

namespace partax {
namespace {

// Whether these may be the children and the aux data of a node.
bool is_pair(const Ref& pair) {
  if (!pair || !PyTuple_Check(pair.get()) || PyTuple_GET_SIZE(pair.get()) != 2) return false;
  PyObject* children = PyTuple_GET_ITEM(pair.get(), 0);
  return Py_TYPE(children)->tp_iter != nullptr || PySequence_Check(children) != 0;
}

}  // namespace

OneLevel flatten_registered(PyObject* node, const TypeInfo& info) {
  const Ref function = info.flatten_function;
  const auto given = [&](PyObject* result) {
    if (result == nullptr) throw WalkError::from_user_code("flattening the `" + type_name(node) + "` at");
    return Ref::steal(result);
  };
  Ref pair;
  // jax itself, which says what is wrong, is asked where the function gives something else.
  for (PyObject* asked : {function.get(), hooks().flatten_one_level.get()}) {
    if (asked == nullptr || is_pair(pair)) continue;
    pair = given(PyObject_CallOneArg(asked, node));
  }
  if (!is_pair(pair)) {
    throw WalkError::diagnosed(PyExc_TypeError,
                               "jax does not know `" + type_name(node) + "` as a pytree node any more");
  }
  OneLevel result;
  result.children = given(PySequence_Fast(PyTuple_GET_ITEM(pair.get(), 0), "children must be a sequence"));
  result.aux = Ref::borrow(PyTuple_GET_ITEM(pair.get(), 1));
  return result;
}

bool agrees(const TypeInfo& info, PyObject* object) {
  if (info.agreement != TypeInfo::kUntold) return info.agreement == TypeInfo::kAgrees;
  Ref answer;
  try {
    answer = python::order_of(object);
  } catch (const PythonError&) {
    throw WalkError::from_user_code("flattening the `" + type_name(object) + "` at");
  }
  if (PyUnicode_Check(answer.get())) throw WalkError::diagnosed(PyExc_TypeError, exact_text(answer.get()));
  if (answer.get() != Py_None) info.set_order = places_of(info, answer.get());
  info.agreement = answer.get() != Py_None ? TypeInfo::kAgrees : TypeInfo::kDiffers;
  return info.agreement == TypeInfo::kAgrees;
}

}  // namespace partax
