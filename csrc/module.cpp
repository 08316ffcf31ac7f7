// What partax._core exposes: of each folder what its own registration says, in the order in which they include another.
#include "base/binding.h"

namespace partax {

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
  partax::register_classes(module);
  partax::register_statics(module);
  partax::register_tree(module);
  partax::register_partition(module);
  partax::register_call(module);
}
