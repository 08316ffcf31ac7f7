// partition/ splits trees by filters, joins them, and works on every leaf of them.
// In: trees, and filters of leaves by predicate, type and path. Out: trees, leaves and structures, and dictionaries.
#include "base/binding.h"
#include "base/python_hooks.h"
#include "partition/one_level.h"
#include "partition/partition.h"
#include "tree/spec_data.h"

namespace py = pybind11;

namespace partax {
namespace {

constexpr char kStructureDoc[] =
    "The structure of a tree without its leaves: what `partax.tree.structure` returns, and `flatten` second.\n\n"
    "Example:\n  >>> structure = partax.tree.structure({'a': 1, 'b': [2, 3]})\n"
    "  >>> structure.num_leaves, structure == partax.tree.structure({'a': 0, 'b': [0, 0]})\n  (3, True)\n\n"
    "Two are equal if their nodes are, and their keys, static fields and aux data are equal by `==`, as jax's are. It\n"
    "is immutable and hashable.";

void register_structure(py::module_& module) {
  BoxedClass<TreeSpec>(module, "partax.tree.Structure", kStructureDoc, {})
      .def_property(
          "num_leaves", [](const TreeSpec& tree) { return number(tree.num_dynamic); }, "How many leaves the tree has.")
      .def(
          "__eq__",
          [](const TreeSpec& a, const TreeSpec& b) { return with_path("structure", [&] { return are_alike(a, b); }); },
          py::is_operator())
      // Of the nodes alone, as jax's: aux data need not be hashable.
      .def("__hash__", [](const TreeSpec& tree) { return number(tree.hash); })
      .def("__repr__",
           [](const TreeSpec& tree) {
             const Ref text = python::tree_text(spec_data(tree, root_of("")));
             return Ref::checked(PyUnicode_FromFormat("Structure(%U)", text.get()));
           })
      .def("__reduce__", [](PyObject* self) { return python::reduced(self); })
      .def("__copy__", [](PyObject* self) { return Ref::borrow(self); })
      .def("__deepcopy__", [](PyObject* self, PyObject*) { return Ref::borrow(self); })
      .make_immutable();
}

}  // namespace

void register_partition(py::module_& module) {
  define(module, "partition", &partition);
  define(module, "filter", &filter);
  define(module, "combine", &combine);
  define(module, "broadcast_prefix", &broadcast_prefix);
  define(module, "flat_partition", &flat_partition);
  define(module, "flat_combine", &flat_combine);
  register_structure(module);
  define(module, "tree_leaves", &tree_leaves);
  define(module, "tree_flatten", &tree_flatten);
  define(module, "tree_unflatten", &tree_unflatten);
  define(module, "tree_map", &tree_map);
  define(module, "tree_find", &tree_find);
  define(module, "equal_arrays", [](PyObject* a, PyObject* b) -> py::object {
    const std::optional<bool> answer = equal_arrays(a, b);
    return answer ? py::object(py::bool_(*answer)) : py::object(py::none());
  });
}

}  // namespace partax
