// partition/ splits trees by filters, and joins them.
// In: trees, and filters of leaves by predicate, type and path. Out: trees, leaves and structures, and dictionaries.
#include "base/binding.h"
#include "partition/partition.h"

namespace partax {

void register_partition(pybind11::module_& module) {
  define(module, "partition", &partition);
  define(module, "filter", &filter);
  define(module, "combine", &combine);
  define(module, "broadcast_prefix", &broadcast_prefix);
  define(module, "flat_partition", &flat_partition);
  define(module, "tree_unflatten", &tree_unflatten);
  define(module, "tree_flatten", &tree_flatten);
  define(module, "have_equal_structures", &have_equal_structures);
}

}  // namespace partax
