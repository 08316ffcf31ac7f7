// classes/ knows what an object is by its type.
// In: any Python object. Out: its family, where its children and static fields are, whether it is an array.
#include "base/binding.h"
#include "classes/predicates.h"
#include "classes/type_table.h"

namespace py = pybind11;

namespace partax {
namespace {

// The family of a node, or the sort of a leaf.
const char* node_kind(PyObject* object) {
  TypeTable::instance().epoch();
  const TypeInfo& info = TypeTable::instance().find_in_tree(object);
  if (info.kind != Kind::kStaticLeaf) return kind_name(info.kind);
  return kind_name(is_dynamic_sort(info.sort, false) ? Kind::kDynamicLeaf : Kind::kStaticLeaf);
}

// Has a type described again when it is next found; older traces of it are void.
void read_anew(PyObject* type) { TypeTable::instance().read_anew(reinterpret_cast<PyTypeObject*>(type)); }

}  // namespace

void register_classes(py::module_& module) {
  define(module, "read_anew", &read_anew);
  define(module, "node_kind", &node_kind);
  add_predicates(module.ptr());
}

}  // namespace partax
