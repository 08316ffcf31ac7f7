#include "static_key/callable_parts.h"

#include <algorithm>

#include "base/python_hooks.h"

namespace partax {
namespace {

// Re-created callables that a key identifies; others are proven again at each call.
constexpr std::size_t kMaxReCreated = 8;

bool refers_to(const Ref& reference, PyObject* object) noexcept {
  return PyWeakref_CheckRef(reference.get()) ? weakly_is(reference.get(), object) : reference.get() == object;
}

Ref target_of(const Ref& reference) {
  return PyWeakref_CheckRef(reference.get()) ? weak_target(reference.get()) : reference;
}

}  // namespace

Ref weakly(PyObject* object, PyObject* on_death) {
  if (PyType_SUPPORTS_WEAKREFS(Py_TYPE(object)) == 0) return Ref::borrow(object);
  return Ref::checked(PyWeakref_NewRef(object, on_death));
}

CallableSort callable_sort(PyObject* value) noexcept {
  PyTypeObject* type = Py_TYPE(value);
  if (type == &PyFunction_Type) return CallableSort::kFunction;
  if (type == &PyMethod_Type) return CallableSort::kMethod;
  if (hooks.jitted.is(type)) return CallableSort::kJitted;
  if (hooks.wrapper.is(type) || (hooks.wrapper && hooks.wrapper.is(type->tp_base))) return CallableSort::kWrapper;
  PyTypeObject* partial = hooks.partial.type();
  if (partial != nullptr && PyType_IsSubtype(type, partial) && type->tp_hash == partial->tp_hash &&
      type->tp_richcompare == partial->tp_richcompare) {
    return CallableSort::kPartial;
  }
  const bool is_plain = type->tp_richcompare == PyBaseObject_Type.tp_richcompare &&
                        type->tp_hash == PyBaseObject_Type.tp_hash && PyType_SUPPORTS_WEAKREFS(type);
  if (is_plain && type->tp_call != nullptr && !PyType_Check(value)) return CallableSort::kOther;
  return CallableSort::kNone;
}

CallableIdentity::CallableIdentity(PyObject* callable, PyObject* on_death) {
  const bool is_method = PyMethod_Check(callable) != 0;
  object_ = weakly(is_method ? PyMethod_GET_SELF(callable) : callable, on_death);
  if (is_method) function_ = weakly(PyMethod_GET_FUNCTION(callable), on_death);
}

bool CallableIdentity::is(PyObject* callable) const noexcept {
  if (!function_) return refers_to(object_, callable);
  return PyMethod_Check(callable) != 0 && refers_to(object_, PyMethod_GET_SELF(callable)) &&
         refers_to(function_, PyMethod_GET_FUNCTION(callable));
}

Ref CallableIdentity::get() const {
  Ref object = target_of(object_);
  if (!function_ || !object) return object;
  const Ref function = target_of(function_);
  return function ? Ref::checked(PyMethod_New(function.get(), object.get())) : Ref();
}

CallableRecord::CallableRecord(PyObject* callable, PyObject* on_death, bool proves) {
  identities.emplace_back(callable, on_death);
  if (!proves) return;
  proof = python::Proof(callable);
  is_provable = PyUnicode_GET_LENGTH(attribute(proof.get(), "reason").get()) == 0;
  if (is_provable) content = CallableContent(callable, attribute(proof.get(), "globals"));
  num_array_bytes = size_of_number(attribute(proof.get(), "num_array_bytes").get());
}

bool CallableRecord::is_alive() const {
  return std::any_of(identities.begin(), identities.end(),
                     [](const CallableIdentity& identity) { return static_cast<bool>(identity.get()); });
}

bool CallableRecord::accepts(PyObject* callable) {
  if (is_known(callable)) return true;
  if (!is_provable) return false;
  if (!content.matches(callable) && python::is_same(proof, callable).get() != Py_True) return false;
  identities.insert(identities.begin() + 1, CallableIdentity(callable, nullptr));
  if (identities.size() > kMaxReCreated) identities.pop_back();
  return true;
}

std::string CallableRecord::difference(PyObject* callable) const {
  return proof ? exact_text(python::difference_text(proof, callable).get()) : std::string();
}

void CallableRecord::check_still_proven() {
  const std::vector<CallableIdentity> snapshot = identities;  // Python may add to them
  for (const CallableIdentity& identity : snapshot) {
    const Ref callable = is_provable ? identity.get() : Ref();
    if (callable && python::is_same(proof, callable).get() != Py_True) is_provable = false;
  }
}

void CallableRecord::refuse_others(const char* reason) {
  static Name name("reason");
  if (!is_provable) return;
  checked_int(PyObject_SetAttr(proof.get(), name.get(), exact_unicode(reason).get()));
  is_provable = false;
}

}  // namespace partax
