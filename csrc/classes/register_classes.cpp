#include "classes/register_classes.h"

#include "base/binding.h"
#include "base/hooks.h"
#include "classes/predicates.h"
#include "classes/type_table.h"

namespace py = pybind11;

namespace partax {
namespace {

void configure_classes(const py::object& default_dict, const py::object& flatten_one_level,
                       const py::object& flatten_one_level_with_keys, const py::object& is_node,
                       const py::object& jax_array, const py::object& jax_array_type, const py::object& registered) {
  hooks().default_dict.set(default_dict.ptr());
  hooks().flatten_one_level.set(flatten_one_level.ptr());
  hooks().flatten_one_level_with_keys.set(flatten_one_level_with_keys.ptr());
  hooks().is_node.set(is_node.ptr());
  hooks().jax_array.set(jax_array.ptr());
  hooks().jax_array_type.set(null_if_none(jax_array_type));
  hooks().registered.set(null_if_none(registered));
}

const char* node_kind(const py::object& object) {
  TypeTable::instance().epoch();
  const TypeInfo& info = TypeTable::instance().find(object.ptr());
  if (info.kind != Kind::kStaticLeaf) return kind_name(info.kind);
  return kind_name(is_dynamic_sort(info.sort, false) ? Kind::kDynamicLeaf : Kind::kStaticLeaf);
}

}  // namespace

void register_classes(py::module_& module) {
  define(module, "configure_classes", &configure_classes,
         "Sets what the native stages need of Python and jax to know a class.", py::kw_only(), py::arg("default_dict"),
         py::arg("flatten_one_level"), py::arg("flatten_one_level_with_keys"), py::arg("is_node"), py::arg("jax_array"),
         py::arg("jax_array_type"), py::arg("registered"));
  define(
      module, "read_anew",
      [](const py::type& type) { TypeTable::instance().read_anew(reinterpret_cast<PyTypeObject*>(type.ptr())); },
      "Has a type described anew when it is met next; older traces of it are void.", py::arg("type"));
  define(module, "node_kind", &node_kind, "The family of a node, or the sort of a leaf.", py::arg("object"));
  const py::object predicates = give(predicate_functions());
  const char* names[] = {"is_array", "is_array_like", "is_inexact_array", "is_inexact_array_like"};
  for (std::size_t i = 0; i < 4; ++i) module.attr(names[i]) = predicates[py::int_(i)];
}

}  // namespace partax
