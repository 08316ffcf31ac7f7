// The stages of a call by themselves, for tests and tools: a tree's static part as an object.
#pragma once

#include "base/boxed_class.h"
#include "tree/described.h"
#include "tree/flatten.h"
#include "tree/match.h"
#include "tree/rebuild.h"

namespace partax {

namespace py = pybind11;

// The static part of one tree: `loose` rebuilds, `sealed` compares.
struct Spec {
  TreeSpec loose;
  TreeSpec sealed;
  std::string root;
};

inline py::list as_list(const LeafBuffer& leaves) {
  py::list list;
  for (std::size_t i = 0; i < leaves.size(); ++i) list.append(py::handle(leaves[i]));
  return list;
}

inline TreeSpec flatten_tree(PyObject* tree, const std::string& root, LeafBuffer& leaves) {
  TreeSpec spec;
  FlattenOptions options;
  options.rebuildable = true;
  options.keyed = true;
  with_path(root.c_str(), [&] { Flattener(spec, leaves, options).tree(tree); });
  return spec;
}

inline py::tuple flatten(const py::object& tree, const py::str& root) {
  LeafBuffer leaves;
  auto spec = std::make_unique<Spec>();
  spec->root = exact_text(root.ptr());
  spec->loose = flatten_tree(tree.ptr(), spec->root, leaves);
  spec->sealed = spec->loose.sealed(nullptr);
  return py::make_tuple(as_list(leaves), give(box(std::move(spec))));
}

inline py::object match(const Spec& spec, const py::object& tree) {
  LeafBuffer leaves;
  if (!match_tree(spec.sealed, tree.ptr(), leaves)) return py::none();
  return as_list(leaves);
}

inline py::object rebuild_tree(const Spec& spec, const py::object& leaves) {
  std::vector<Ref> list;
  for (const py::handle leaf : leaves) list.push_back(Ref::borrow(leaf.ptr()));
  if (list.size() != spec.loose.num_dynamic) {
    throw py::value_error("found " + std::to_string(list.size()) + " leaves, expected " +
                          std::to_string(spec.loose.num_dynamic));
  }
  ListedLeaves source(list);
  return give(rebuild(spec.loose, source));
}
template <>
struct IsBoxed<Spec> : std::true_type {};

}  // namespace partax
