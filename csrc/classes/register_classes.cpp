// classes/ knows what an object is by its type.
// In: any Python object. Out: its family, where its children and static fields are, whether it is an array.
#include "base/binding.h"
#include "base/hooks.h"
#include "classes/predicates.h"
#include "classes/type_table.h"

namespace py = pybind11;

namespace partax {
namespace {

void configure_classes(PyObject* default_dict, PyObject* flatten_one_level, PyObject* flatten_one_level_with_keys,
                       PyObject* is_node, PyObject* jax_array, PyObject* jax_array_type, PyObject* registered) {
  hooks().default_dict.set(default_dict);
  hooks().flatten_one_level.set(flatten_one_level);
  hooks().flatten_one_level_with_keys.set(flatten_one_level_with_keys);
  hooks().is_node.set(is_node);
  hooks().jax_array.set(jax_array);
  hooks().jax_array_type.set(null_if_none(jax_array_type));
  hooks().registered.set(null_if_none(registered));
}

// The family of a node, or the sort of a leaf.
const char* node_kind(PyObject* object) {
  TypeTable::instance().epoch();
  const TypeInfo& info = TypeTable::instance().find(object);
  if (info.kind != Kind::kStaticLeaf) return kind_name(info.kind);
  return kind_name(is_dynamic_sort(info.sort, false) ? Kind::kDynamicLeaf : Kind::kStaticLeaf);
}

// Has a type described anew when it is met next; older traces of it are void.
void read_anew(PyObject* type) { TypeTable::instance().read_anew(reinterpret_cast<PyTypeObject*>(type)); }

}  // namespace

void register_classes(py::module_& module) {
  define(module, "configure_classes", &configure_classes, py::kw_only(), py::arg("default_dict"),
         py::arg("flatten_one_level"), py::arg("flatten_one_level_with_keys"), py::arg("is_node"), py::arg("jax_array"),
         py::arg("jax_array_type"), py::arg("registered"));
  define(module, "read_anew", &read_anew);
  define(module, "node_kind", &node_kind);
  add_predicates(module.ptr());
}

}  // namespace partax
