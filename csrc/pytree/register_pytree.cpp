// tree/ takes trees apart and makes them again.
// In: a tree. Out: its dynamic leaves and its static part, which matches other trees and rebuilds this one.
#include "base/binding.h"
#include "pytree/flatten.h"
#include "pytree/match.h"
#include "pytree/rebuild.h"
#include "pytree/spec_data.h"
#include "pytree/static_node.h"

namespace py = pybind11;

namespace partax {
namespace {

// The static part of one tree, for tests and tools: `loose` rebuilds, `sealed` compares.
struct Spec {
  TreeSpec loose;
  TreeSpec sealed;
  int traverse(visitproc visit, void* arg) const { return visit_all(visit, arg, loose, sealed); }
};

TreeSpec flatten_tree(PyObject* tree, const std::string& root, LeafBuffer& leaves) {
  TreeSpec spec;
  FlattenOptions options;
  options.keyed = true;
  with_path(root.c_str(), [&] { Flattener(spec, leaves, options).tree(tree); });
  return spec;
}

// The dynamic leaves of a tree, and its static part.
py::tuple flatten(PyObject* tree, PyObject* root) {
  LeafBuffer leaves;
  auto spec = std::make_unique<Spec>();
  spec->loose = flatten_tree(tree, exact_text(root), leaves);
  spec->sealed = spec->loose.sealed(nullptr);
  return py::make_tuple(leaves.list(), box(std::move(spec)));
}

Ref match(const Spec& spec, PyObject* tree) {
  LeafBuffer leaves;
  return match_tree(spec.sealed, tree, leaves) ? leaves.list() : Ref::borrow(Py_None);
}

Ref rebuild_tree(const Spec& spec, PyObject* leaves) {
  const Ref row = Ref::checked(PySequence_Tuple(leaves));
  return rebuild(spec.loose, Items(row.get()).begin(), static_cast<std::size_t>(PyTuple_GET_SIZE(row.get())));
}

bool are_equal_specs(const Spec& spec, const Spec& other) {
  return with_static_path(other.loose, [] { return root_of("tree"); }, [&] { return spec.sealed.equals(other.loose); });
}

// (parts, array leaves) of a tree.
py::tuple describe_tree(PyObject* tree, PyObject* root) {
  LeafBuffer leaves;
  const std::string name = exact_text(root);
  const TreeSpec spec = flatten_tree(tree, name, leaves);
  return py::make_tuple(spec_data(spec, root_of(name)), leaves.list());
}

}  // namespace

void register_tree(py::module_& module) {
  BoxedClass<Spec>(module, "partax._core.TreeSpec", "The static part of a tree.", {})
      .def("match", &match)
      .def("rebuild", &rebuild_tree)
      .def("__hash__", [](const Spec& spec) { return number(spec.loose.hash); })
      .def("__eq__", &are_equal_specs, py::is_operator());
  define(module, "flatten", &flatten, py::arg("tree"), py::arg("root") = "tree");
  define(module, "describe_tree", &describe_tree);
  register_static_node_types(module.ptr());
  define(module, "roots_of", &roots_of);
}

}  // namespace partax
