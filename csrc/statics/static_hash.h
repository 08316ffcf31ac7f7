// The hash of a static value, which agrees with its equality.
#pragma once

#include "base/error_path.h"
#include "statics/static_form.h"

namespace partax {

// The note on an exception of the user's code.
inline constexpr const char* kComparing = "comparing or hashing the static value";

// How callables are compared: by what they hold and read, or by identity.
enum class Callables : std::uint8_t { kByStructure, kByIdentity };

// Agrees with StaticValue::equals. Raises WalkError for values that cannot be static.
std::size_t static_hash(PyObject* value, Unhashable unhashable, Callables callables = Callables::kByStructure);
// The same of a part of a value, whose errors get their place further up.
std::size_t hash_of_part(PyObject* value, Unhashable unhashable, Callables callables);

}  // namespace partax
