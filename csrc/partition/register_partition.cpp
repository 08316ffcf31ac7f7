#include "partition/register_partition.h"

#include "base/binding.h"
#include "partition/equal_arrays.h"
#include "partition/every_leaf.h"
#include "partition/filters.h"
#include "partition/flat_partition.h"
#include "partition/partition.h"
#include "partition/structure.h"

namespace py = pybind11;

namespace partax {
namespace {

void register_every_leaf(py::module_& module) {
  module.attr("Structure") = give(register_structure_type());
  define(
      module, "tree_leaves",
      [](const py::object& tree, const py::object& is_leaf) {
        return give(tree_leaves(tree.ptr(), null_if_none(is_leaf)));
      },
      py::arg("tree"), py::arg("is_leaf"));
  define(
      module, "tree_flatten",
      [](const py::object& tree, const py::object& is_leaf) {
        return give(tree_flatten(tree.ptr(), null_if_none(is_leaf)));
      },
      py::arg("tree"), py::arg("is_leaf"));
  define(
      module, "tree_structure",
      [](const py::object& tree, const py::object& is_leaf) {
        return give(tree_structure(tree.ptr(), null_if_none(is_leaf)));
      },
      py::arg("tree"), py::arg("is_leaf"));
  define(
      module, "tree_unflatten",
      [](const py::object& structure, const py::object& leaves) {
        if (!is_structure(structure.ptr())) throw py::type_error("expected a Structure");
        return give(unflatten(structure.ptr(), leaves.ptr()));
      },
      py::arg("structure"), py::arg("leaves"));
  define(
      module, "tree_map",
      [](const py::object& function, const py::tuple& trees, const py::object& is_leaf, bool with_path) {
        return give(tree_map(function.ptr(), trees.ptr(), null_if_none(is_leaf), with_path));
      },
      py::arg("function"), py::arg("trees"), py::arg("is_leaf"), py::arg("with_path"));
  define(
      module, "tree_find",
      [](const py::object& tree, const py::tuple& targets, const py::object& is_leaf, bool empty_tuples) {
        return give(tree_find(tree.ptr(), targets.ptr(), null_if_none(is_leaf), empty_tuples));
      },
      py::arg("tree"), py::arg("targets"), py::arg("is_leaf"), py::arg("empty_tuples"));
  define(
      module, "equal_arrays",
      [](const py::object& a, const py::object& b) -> py::object {
        const std::optional<bool> answer = equal_arrays(a.ptr(), b.ptr());
        return answer ? py::object(py::bool_(*answer)) : py::object(py::none());
      },
      py::arg("a"), py::arg("b"));
}

}  // namespace

void register_partition(py::module_& module) {
  define(
      module, "configure_partition", [](const py::object& filter) { described_filter.set(filter.ptr()); },
      "Sets the class of filters that are described.", py::kw_only(), py::arg("filter"));
  define(
      module, "partition",
      [](const py::object& tree, const py::tuple& filters, const py::object& replace, const py::object& is_leaf) {
        const Partition parts = partition(tree.ptr(), filters.ptr(), replace.ptr(), null_if_none(is_leaf));
        py::list counts;
        for (const std::size_t count : parts.counts) counts.append(number(count));
        return py::make_tuple(give(parts.trees), counts);
      },
      py::arg("tree"), py::arg("filters"), py::arg("replace"), py::arg("is_leaf"));
  define(
      module, "filter",
      [](const py::object& tree, const py::object& filter_spec, bool inverse, const py::object& replace,
         const py::object& is_leaf) {
        auto [part, taken] = filter(tree.ptr(), filter_spec.ptr(), inverse, replace.ptr(), null_if_none(is_leaf));
        return py::make_tuple(give(part), number(taken));
      },
      py::arg("tree"), py::arg("filter_spec"), py::arg("inverse"), py::arg("replace"), py::arg("is_leaf"));
  define(
      module, "combine",
      [](const py::tuple& trees, const py::object& is_leaf) {
        return give(combine(trees.ptr(), null_if_none(is_leaf)));
      },
      py::arg("trees"), py::arg("is_leaf"));
  define(
      module, "broadcast_prefix",
      [](const py::object& prefix, const py::object& tree, const py::object& is_prefix_leaf, const py::str& prefix_name,
         const py::str& tree_name) {
        return give(broadcast_prefix(prefix.ptr(), tree.ptr(), is_prefix_leaf.ptr(),
                                     exact_text(prefix_name.ptr()).c_str(), exact_text(tree_name.ptr()).c_str()));
      },
      py::arg("prefix"), py::arg("tree"), py::arg("is_prefix_leaf"), py::arg("prefix_name"), py::arg("tree_name"));
  define(
      module, "flat_partition",
      [](const py::object& tree, const py::tuple& filters, const py::object& separator, bool rest_is_static,
         const py::object& is_leaf, const py::str& name) {
        return give(flat_partition(tree.ptr(), filters.ptr(), null_if_none(separator), rest_is_static,
                                   null_if_none(is_leaf), exact_text(name.ptr()).c_str()));
      },
      py::arg("tree"), py::arg("filters"), py::arg("separator"), py::arg("rest_is_static"), py::arg("is_leaf"),
      py::arg("name"));
  define(
      module, "flat_combine",
      [](const py::object& spec, const py::tuple& dicts) { return give(flat_combine(spec.ptr(), dicts.ptr())); },
      py::arg("spec"), py::arg("dicts"));
  register_every_leaf(module);
}

}  // namespace partax
