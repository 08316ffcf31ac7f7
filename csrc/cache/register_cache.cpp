#include "cache/register_cache.h"

#include "base/binding.h"
#include "cache/cache_object.h"

namespace py = pybind11;

namespace partax {

void register_cache(py::module_& module) {
  module.attr("CallCache") = give(register_cache_type());
  module.def("caches", [] { return give(all_caches()); }, "The caches of all callables that live.");
}

}  // namespace partax
