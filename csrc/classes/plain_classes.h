// Classes of which a call is known to do nothing but what can be done without it.
#pragma once

#include "classes/type_table.h"

namespace partax {

// Whether calling the class with its fields only makes the tuple. What the class says is asked once for each of its
// versions; what its __new__ sees, each time.
bool is_plain_named_tuple(const TypeInfo& info, std::size_t arity);

// The order in which calling a dataclass with its fields sets them, if it does nothing else; else empty. What the class
// says is asked once for each of its versions.
const std::vector<std::uint32_t>& order_of_call(const TypeInfo& info);

// Whether what has been declared of a class may still be so: asked once for each of its versions.
bool is_still_declared(const TypeInfo& info);

}  // namespace partax
