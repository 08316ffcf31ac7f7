#include "base/binding.h"
#include "pytree/flatten.h"
#include "pytree/spec_data.h"
#include "pytree/static_node.h"

namespace py = pybind11;

namespace partax {
namespace {

// (parts, array leaves) of a tree.
py::tuple describe_tree(PyObject* tree, PyObject* root) {
  const std::string name = exact_text(root);
  TreeSpec spec;
  LeafBuffer leaves;
  FlattenOptions options;
  options.keyed = true;
  with_path(name.c_str(), [&] { Flattener(spec, leaves, options).tree(tree); });
  return py::make_tuple(spec_data(spec, root_of(name)), leaves.list());
}

}  // namespace

void register_tree(py::module_& module) {
  define(module, "describe_tree", &describe_tree);
  register_static_node_types(module.ptr());
}

}  // namespace partax
