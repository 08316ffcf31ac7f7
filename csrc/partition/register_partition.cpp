// partition/ splits trees by filters, joins them, and works on every leaf of them.
// In: trees, and filters of leaves by predicate, type and path. Out: trees, leaves and structures, and dictionaries.
#include "base/binding.h"
#include "partition/filters.h"
#include "partition/partition.h"

namespace py = pybind11;

namespace partax {

void register_partition(py::module_& module) {
  define(
      module, "configure_partition", [](PyObject* filter) { described_filter.set(filter); }, py::kw_only(),
      py::arg("filter"));
  define(module, "partition", &partition);
  define(module, "filter", &filter);
  define(module, "combine", &combine);
  define(module, "broadcast_prefix", &broadcast_prefix);
  define(module, "flat_partition", &flat_partition);
  define(module, "flat_combine", &flat_combine);
  register_structure_type(module.ptr());
  define(module, "tree_leaves", &tree_leaves);
  define(module, "tree_flatten", &tree_flatten);
  define(module, "tree_structure", &tree_structure);
  define(module, "tree_unflatten", &tree_unflatten);
  define(module, "tree_map", &tree_map);
  define(module, "tree_find", &tree_find);
  define(module, "equal_arrays", [](PyObject* a, PyObject* b) -> py::object {
    const std::optional<bool> answer = equal_arrays(a, b);
    return answer ? py::object(py::bool_(*answer)) : py::object(py::none());
  });
}

}  // namespace partax
