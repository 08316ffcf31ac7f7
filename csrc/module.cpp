// What partax._core exposes: of each folder what its own registration says, in the order in which they include another.
#include "base/binding.h"
#include "base/hooks.h"
#include "classes/type_table.h"
#include "partition/filters.h"
#include "statics/callable_parts.h"

namespace partax {
namespace {

// What Python tells, by name: most of it when partax is imported.
void configure(const pybind11::kwargs& references) {
  const std::pair<const char*, ImmortalRef*> names[] = {
      {"abstract", &hooks().abstract},
      {"default_dict", &hooks().default_dict},
      {"flatten_one_level", &hooks().flatten_one_level},
      {"is_node", &hooks().is_node},
      {"jax_array", &hooks().jax_array},
      {"jax_array_type", &hooks().jax_array_type},
      {"registered", &hooks().registered},
      {"missing", &equinox().missing},
      {"wrapper_names", &equinox().wrapper_names},
      {"partial", &taken_apart().partial},
      {"jitted", &taken_apart().jitted},
      {"tree_def", &taken_apart().tree_def},
      {"described_filter", &described_filter},
      {"predicates", &predicate_filters},
  };
  std::size_t known = 0;
  for (const auto& [name, kept] : names) {
    if (!references.contains(name)) continue;
    kept->set(null_if_none(references[name].ptr()));
    ++known;
  }
  if (known != references.size()) raise_error(PyExc_TypeError, "expected names of the table in module.cpp");
}

}  // namespace

// Each in the register_….cpp of its folder.
void register_classes(pybind11::module_& module);
void register_statics(pybind11::module_& module);
void register_tree(pybind11::module_& module);
void register_partition(pybind11::module_& module);
void register_call(pybind11::module_& module);

}  // namespace partax

PYBIND11_MODULE(_core, module, pybind11::mod_gil_not_used(), pybind11::multiple_interpreters::not_supported()) {
  module.doc() = "The native stages of partax.";
  partax::translate_exceptions();
  partax::define(module, "configure", &partax::configure);
  partax::register_classes(module);
  partax::register_statics(module);
  partax::register_tree(module);
  partax::register_partition(module);
  partax::register_call(module);
}
