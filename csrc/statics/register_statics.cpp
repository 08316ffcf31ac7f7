// statics/ compares static values, callables included.
// In: non-arrays. Out: their hash, and snapshots for later comparisons.
#include "base/binding.h"
#include "statics/static_value.h"

namespace py = pybind11;

namespace partax {
namespace {

bool static_equal(PyObject* a, PyObject* b) {
  return with_path("value", [&] { return StaticValue::loose(Ref::borrow(a)).sealed(nullptr).equals(b); });
}

Ref hash_of_value(PyObject* value) {
  return with_path("value", [&] { return number(static_hash(value, Unhashable::kRefuse)); });
}

}  // namespace

void register_statics(py::module_& module) {
  define(module, "static_equal", &static_equal);
  define(module, "static_hash", &hash_of_value);
}

}  // namespace partax
