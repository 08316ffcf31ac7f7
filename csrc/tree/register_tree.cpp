#include "tree/register_tree.h"

#include "base/binding.h"
#include "base/python_hooks.h"
#include "classes/equinox.h"
#include "tree/flatten.h"
#include "tree/match.h"
#include "tree/rebuild.h"
#include "tree/spec_data.h"
#include "tree/static_node.h"

namespace py = pybind11;

namespace partax {
namespace {

// The static part of one tree, for tests and tools: `loose` rebuilds, `sealed` compares.
struct Spec {
  TreeSpec loose;
  TreeSpec sealed;
  std::string root;

  int traverse(visitproc visit, void* arg) const {
    const int status = loose.traverse(visit, arg);
    return status != 0 ? status : sealed.traverse(visit, arg);
  }
};

void configure_tree(const py::object& missing, const py::tuple& wrapper_names) {
  equinox().missing.set(missing.ptr());
  equinox().wrapper_names.set(wrapper_names.ptr());
}

py::list as_list(const LeafBuffer& leaves) {
  py::list list;
  for (std::size_t i = 0; i < leaves.size(); ++i) list.append(py::handle(leaves[i]));
  return list;
}

TreeSpec flatten_tree(PyObject* tree, const std::string& root, LeafBuffer& leaves) {
  TreeSpec spec;
  FlattenOptions options;
  options.keyed = true;
  with_path(root.c_str(), [&] { Flattener(spec, leaves, options).tree(tree); });
  return spec;
}

py::tuple flatten(const py::object& tree, const py::str& root) {
  LeafBuffer leaves;
  auto spec = std::make_unique<Spec>();
  spec->root = exact_text(root.ptr());
  spec->loose = flatten_tree(tree.ptr(), spec->root, leaves);
  spec->sealed = spec->loose.sealed(nullptr);
  if (spec->sealed.holds_callables()) spec->sealed.guard(spec->loose);
  return py::make_tuple(as_list(leaves), give(box(std::move(spec))));
}

py::object match(const Spec& spec, const py::object& tree) {
  LeafBuffer leaves, others;
  const MadeAnew made_anew;
  if (!match_tree(spec.sealed, tree.ptr(), leaves)) return py::none();
  const bool is_same = !made_anew.any() || spec.sealed.equals_as_proven(flatten_tree(tree.ptr(), spec.root, others));
  if (!is_same) return py::none();
  return as_list(leaves);
}

py::object rebuild_tree(const Spec& spec, const py::object& leaves) {
  std::vector<Ref> list;
  for (const py::handle leaf : leaves) list.push_back(Ref::borrow(leaf.ptr()));
  if (list.size() != spec.loose.num_dynamic) {
    throw py::value_error("found " + std::to_string(list.size()) + " leaves, expected " +
                          std::to_string(spec.loose.num_dynamic));
  }
  ListedLeaves source(list);
  return give(rebuild(spec.loose, source));
}

}  // namespace

template <>
struct IsBoxed<Spec> : std::true_type {};

void register_tree(py::module_& module) {
  BoxedClass<Spec>(module, "partax._core.TreeSpec", "The static part of a tree.", nullptr)
      .def_property("num_dynamic", [](const Spec& spec) { return number(spec.loose.num_dynamic); })
      .def("dynamic_paths",
           [](const Spec& spec) { return give(python::leaf_paths(spec_data(spec.loose, root_of(spec.root)))); })
      .def("match", &match, py::arg("tree"))
      .def("rebuild", &rebuild_tree, py::arg("leaves"))
      .def("__hash__", [](const Spec& spec) { return number(spec.loose.hash); })
      .def(
          "__eq__",
          [](const Spec& spec, const Spec& other) {
            try {
              return spec.sealed.equals_as_proven(other.loose);
            } catch (const WalkError& error) {
              raise_at_static(error, other.loose, root_of(other.root));
            }
          },
          py::is_operator());
  define(module, "configure_tree", &configure_tree, "Sets what Equinox puts into its modules beside their fields.",
         py::kw_only(), py::arg("missing"), py::arg("wrapper_names"));
  define(module, "flatten", &flatten, "The dynamic leaves of a tree, and its static part.", py::arg("tree"),
         py::arg("root") = "tree");
  define(
      module, "describe_tree",
      [](const py::object& tree, const py::str& root) {
        LeafBuffer leaves;
        const std::string name = exact_text(root.ptr());
        const TreeSpec spec = flatten_tree(tree.ptr(), name, leaves);
        return py::make_tuple(give(spec_data(spec, root_of(name))), as_list(leaves));
      },
      "(parts, array leaves) of a tree.", py::arg("tree"), py::arg("root"));
  const py::object static_nodes = give(register_static_node_types());
  module.attr("FlatSpec") = static_nodes[py::int_(0)];
  module.attr("Static") = static_nodes[py::int_(1)];
  define(
      module, "roots_of", [](const py::object& node) { return give(roots_of(node.ptr())); },
      "All that is static in a Static or FlatSpec.", py::arg("node"));
}

}  // namespace partax
