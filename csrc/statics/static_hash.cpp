#include <utility>

#include "statics/callable_parts.h"
#include "statics/static_form.h"

namespace partax {
namespace {

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

// Of what a callable holds, all may change without a new key, or be another object: only its code counts.
std::size_t hash_callable(PyObject* value, std::size_t seed, Callables callables) {
  if (callables == Callables::kByIdentity) return mix(seed, pointer_hash(value));
  const CallableSort sort = callable_sort(value);
  if (sort == CallableSort::kFunction) {
    const Ref code_object = code_of(value);
    const auto* code = reinterpret_cast<PyCodeObject*>(code_object.get());
    seed = mix(seed, static_cast<std::size_t>(own_hash(code->co_qualname, Unhashable::kRefuse)));
    return mix(seed, static_cast<std::size_t>(code->co_firstlineno));
  }
  Ref inner;
  if (sort == CallableSort::kPartial) inner = part_of_partial(value, 0);
  if (sort == CallableSort::kWrapper) inner = taken_apart().wrapped(value);
  if (sort == CallableSort::kJitted) inner = maybe_attribute(value, "__wrapped__");
  if (!inner) forgive();
  const bool is_known = inner && form_of(inner.get()) == Form::kCallable;
  return is_known ? mix(seed, hash_of_part(inner.get(), Unhashable::kRefuse, callables)) : seed;
}

}  // namespace

std::size_t hash_of_part(PyObject* value, Unhashable unhashable, Callables callables) {
  const DepthGuard guard;
  const Form form = form_of(value);
  const std::size_t seed = pointer_hash(Py_TYPE(value));
  if (is_composite(form)) {
    std::size_t combined = seed;
    bool is_first = true;
    each_item(value, form, [&](const Ref& item) {
      // The object of a method is known by identity, whatever its hash is.
      const bool is_object =
          form == Form::kMethod && !std::exchange(is_first, false) && form_of(item.get()) == Form::kGeneric;
      const std::size_t hash = !item       ? 0
                               : is_object ? pointer_hash(item.get())
                                           : hash_of_part(item.get(), unhashable, callables);
      combined = mix(combined, hash);
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
    case Form::kArray:
      refuse_array(value);
    default:
      return mix(seed, static_cast<std::size_t>(own_hash(value, unhashable)));
  }
}

std::size_t static_hash(PyObject* value, Unhashable unhashable, Callables callables) {
  return reading([&] { return hash_of_part(value, unhashable, callables); }, kComparing);
}

}  // namespace partax
