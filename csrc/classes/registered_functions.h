// What the functions do that a class is registered with. Errors are WalkErrors.
#pragma once

#include "base/python_api.h"
#include "classes/type_table.h"

namespace partax {

// The children and the aux data of a node that is flattened by a registered function.
struct OneLevel {
  Ref children;  // a tuple or list
  Ref aux;
};
OneLevel flatten_registered(PyObject* node, const TypeInfo& info);

// Whether they do what is declared of a kDeclared type: asked of the first instance that is as declared.
bool agrees(const TypeInfo& info, PyObject* object);

}  // namespace partax
