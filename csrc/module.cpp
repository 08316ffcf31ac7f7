// What partax._core exposes: of each folder what its own registration says, in the order in which they include another.
#include "base/binding.h"
#include "call/register_call.h"
#include "classes/register_classes.h"
#include "partition/register_partition.h"
#include "statics/register_statics.h"
#include "tree/register_tree.h"

PYBIND11_MODULE(_core, module, pybind11::mod_gil_not_used(), pybind11::multiple_interpreters::not_supported()) {
  module.doc() = "The native stages of partax.";
  partax::translate_exceptions();
  partax::register_classes(module);
  partax::register_statics(module);
  partax::register_tree(module);
  partax::register_partition(module);
  partax::register_call(module);
}
