#include "trees.h"

#include <pybind11/pybind11.h>

#include <functional>

#include "pytree/flatten.h"

namespace py = pybind11;

namespace partax::bench {
namespace {

py::object array() { return py::module_::import("jax.numpy").attr("ones")(py::tuple()); }

py::object arrays(int size) {
  py::list list;
  for (int i = 0; i < size; ++i) list.append(array());
  return list;
}

// Integers beyond those that Python shares.
py::object statics(int size) {
  py::list list;
  for (int i = 0; i < size; ++i) list.append(1000 + i);
  return list;
}

py::object nested_dict(int depth, int fan_out) {
  if (depth == 0) return array();
  py::dict dict;
  for (int i = 0; i < fan_out; ++i) {
    dict[py::str("key_" + std::to_string(i))] = nested_dict(depth - 1, fan_out);
  }
  return dict;
}

// [array, [array, [array, ...]]]
py::object deep(int depth) {
  py::list list;
  list.append(array());
  if (depth > 1) list.append(deep(depth - 1));
  return list;
}

py::object mlp(int depth) {
  const int width = 4;
  const py::object key = py::module_::import("jax.random").attr("key")(0);
  return py::module_::import("equinox").attr("nn").attr("MLP")(width, width, width, depth, py::arg("key") = key);
}

py::object mlp_and_adam(int depth) {
  const py::module_ equinox = py::module_::import("equinox");
  const py::object model = mlp(depth);
  const py::object adam = py::module_::import("optax").attr("adam")(1e-3);
  return py::make_tuple(model, adam.attr("init")(equinox.attr("filter")(model, equinox.attr("is_inexact_array"))));
}

// Children that are kept as one run count each.
void count_nodes(const TreeSpec& spec, Tree& tree) {
  tree.nodes = spec.nodes.size();
  tree.leaves = spec.num_dynamic;
  for (const Node& node : spec.nodes) {
    const bool is_run = node.kind == Kind::kStaticRun || (node.kind == Kind::kDynamicLeaf && node.arity > 0);
    if (is_run) tree.nodes += node.arity - 1;
    if (node.kind == Kind::kStaticRun) tree.leaves += node.arity;
    if (node.kind == Kind::kStaticLeaf) ++tree.leaves;
  }
}

Tree make_tree(const char* name, const std::function<py::object()>& build) {
  Tree tree;
  tree.name = name;
  tree.object = Ref::steal(build().release().ptr());
  tree.copy = Ref::steal(build().release().ptr());
  LeafBuffer leaves;
  const TreeSpec spec = spec_of(tree.object.get(), leaves);
  count_nodes(spec, tree);
  tree.statics = spec.statics.size();
  for (const TypeInfoPtr& info : spec.infos) tree.has_modules |= info->kind == Kind::kModule;
  return tree;
}

}  // namespace

std::vector<Tree> make_trees() {
  const std::pair<const char*, std::function<py::object()>> builders[] = {
      {"arrays_10", [] { return arrays(10); }},
      {"arrays_100", [] { return arrays(100); }},
      {"arrays_1000", [] { return arrays(1000); }},
      {"statics_100", [] { return statics(100); }},
      {"statics_100k", [] { return statics(100'000); }},
      {"dict_5x5x5", [] { return nested_dict(3, 5); }},
      {"deep_500", [] { return deep(500); }},
      {"mlp_8", [] { return mlp(8); }},
      {"mlp_64", [] { return mlp(64); }},
      {"mlp_64_adam", [] { return mlp_and_adam(64); }},
  };
  std::vector<Tree> trees;
  for (const auto& [name, build] : builders) trees.push_back(make_tree(name, build));
  return trees;
}

TreeSpec spec_of(PyObject* object, LeafBuffer& leaves) {
  TreeSpec spec;
  FlattenOptions options;
  Flattener(spec, leaves, options).tree(object);
  return spec;
}

}  // namespace partax::bench
