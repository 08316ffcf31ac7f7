#include "statics/callable_parts.h"

#include <unordered_map>

#include "statics/static_value.h"

namespace partax {
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
