// partition/ splits trees by filters, and joins them.
// In: trees, and filters of leaves by predicate, type and path. Out: trees, leaves and structures, and dictionaries.
#include "base/binding.h"
#include "partition/one_level.h"
#include "partition/partition.h"

namespace py = pybind11;

namespace partax {
namespace {

void register_structure(py::module_& module) {
  BoxedClass<TreeSpec>(module, "partax._core.Structure", "The structure of a tree without its leaves.", {})
      .def(
          "__eq__",
          [](const TreeSpec& a, const TreeSpec& b) { return with_path("pytree", [&] { return are_alike(a, b); }); },
          py::is_operator())
      .make_immutable();
}

}  // namespace

void register_partition(py::module_& module) {
  define(module, "partition", &partition);
  define(module, "filter", &filter);
  define(module, "combine", &combine);
  define(module, "broadcast_prefix", &broadcast_prefix);
  define(module, "flat_partition", &flat_partition);
  register_structure(module);
  define(module, "tree_unflatten", &tree_unflatten);
  define(module, "tree_flatten", &tree_flatten);
}

}  // namespace partax
