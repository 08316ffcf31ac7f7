// What partax._core exposes.
#include "base/binding.h"
#include "base/hooks.h"
#include "partition/filters.h"
#include "partition/partition.h"
#include "static_key/callable_parts.h"
#include "static_key/static_value.h"
#include "types/type_table.h"

namespace partax {
namespace {

// Sets hooks by name: most of them when partax is imported.
void configure(const pybind11::kwargs& references) {
  const std::pair<const char*, ImmortalRef*> names[] = {
      {"default_dict", &hooks.default_dict},
      {"described_filter", &hooks.described_filter},
      {"flatten_one_level", &hooks.flatten_one_level},
      {"is_node", &hooks.is_node},
      {"jax_array", &hooks.jax_array},
      {"jax_array_type", &hooks.jax_array_type},
      {"jitted", &hooks.jitted},
      {"missing", &hooks.missing},
      {"partial", &hooks.partial},
      {"predicates", &hooks.predicates},
      {"registered", &hooks.registered},
      {"tree_def", &hooks.tree_def},
      {"wrapper_names", &hooks.wrapper_names},
  };
  for (const auto& [name, hook] : names) {
    if (references.contains(name)) hook->set(null_if_none(references[name].ptr()));
  }
}

// The family of a node, or the sort of a leaf.
const char* node_kind(PyObject* object) {
  TypeTable::instance().epoch();
  const TypeInfo& info = TypeTable::instance().find_in_tree(object);
  if (info.kind != Kind::kStaticLeaf) return kind_name(info.kind);
  return kind_name(is_dynamic_sort(info.sort, false) ? Kind::kDynamicLeaf : Kind::kStaticLeaf);
}

bool static_equal(PyObject* a, PyObject* b) {
  return with_path("value", [&] { return StaticValue::loose(Ref::borrow(a)).sealed(nullptr).equals(b); });
}

}  // namespace

// What has Python types of its own.
void register_tree(pybind11::module_& module);
void register_call(pybind11::module_& module);

}  // namespace partax

PYBIND11_MODULE(_core, module, pybind11::mod_gil_not_used(), pybind11::multiple_interpreters::not_supported()) {
  using namespace partax;  // NOLINT(google-build-using-namespace)
  module.doc() = "The native stages of partax.";
  translate_exceptions();
  define(module, "configure", &configure);
  define(module, "read_anew",
         [](PyObject* type) { TypeTable::instance().read_anew(reinterpret_cast<PyTypeObject*>(type)); });
  define(module, "node_kind", &node_kind);
  add_predicates(module.ptr());
  define(module, "static_equal", &static_equal);
  register_tree(module);
  define(module, "partition", &partition);
  define(module, "combine", &combine);
  define(module, "broadcast_prefix", &broadcast_prefix);
  define(module, "flat_partition", &flat_partition);
  define(module, "tree_unflatten", &tree_unflatten);
  define(module, "tree_flatten", &tree_flatten);
  define(module, "have_equal_structures", &have_equal_structures);
  register_call(module);
}
