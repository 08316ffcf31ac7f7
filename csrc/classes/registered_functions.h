// What the functions do that a class is registered with, and what a call of the class does.
#pragma once

#include "base/python_api.h"
#include "classes/type_table.h"

namespace partax {

// The children and the aux data of a node that is flattened by a registered function. Errors are WalkErrors, of
// `agrees` and `note_form` too.
struct OneLevel {
  Ref children;  // a tuple or list
  Ref aux;
};
OneLevel flatten_registered(PyObject* node, const TypeInfo& info);

// Whether they do what is declared of a kDeclared type: asked of the first instance that is as declared.
bool agrees(const TypeInfo& info, PyObject* object);

// Whether calling the class with so many fields only makes the tuple: asked once for each of its versions.
bool is_plain_named_tuple(const TypeInfo& info, std::size_t arity);

// The order in which calling a dataclass with its fields sets them, if it does nothing else; else empty. What the class
// says is asked once for each of its versions.
const std::vector<std::uint32_t>& order_of_call(const TypeInfo& info);

// Whether what has been declared of a class may still be so: asked once for each of its versions.
bool is_still_declared(const TypeInfo& info);

}  // namespace partax
