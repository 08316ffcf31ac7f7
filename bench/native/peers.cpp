#include "peers.h"

#include "timing.h"

namespace py = pybind11;

namespace partax::bench {
namespace {

Ref attribute(const char* module, const char* name) {
  return Ref::steal(py::object(py::module_::import(module).attr(name)).release().ptr());
}

// `flattened` is (leaves, treedef).
void expect_leaves(const Tree& tree, const Ref& flattened) {
  const Py_ssize_t size = PyObject_Size(PyTuple_GET_ITEM(flattened.get(), 0));
  expect(size == static_cast<Py_ssize_t>(tree.leaves), "the peer finds partax's leaves");
}

}  // namespace

Peers::Peers()
    : registry_(attribute("jax.tree_util", "default_registry")),
      jax_flatten_(Ref::checked(PyObject_GetAttrString(registry_.get(), "flatten"))),
      optree_flatten_(attribute("optree", "tree_flatten")),
      optree_keywords_(Ref::checked(Py_BuildValue("(s)", "namespace"))),
      optree_namespace_(exact_unicode("partax_bench")) {}

// optree has no Equinox modules: it is given the flatten functions that jax has for them.
void Peers::teach_optree(const Tree& tree) {
  const py::object known = py::module_::import("optree").attr("register_pytree_node");
  const py::object flatten = py::handle(registry_.get()).attr("flatten_one_level");
  const py::cpp_function unflatten([](const py::object&, const py::object&) {
    throw py::type_error("expected only flattening of modules with optree");
  });
  LeafBuffer leaves;
  for (const TypeInfoPtr& info : spec_of(tree.object.get(), leaves).infos) {
    if (info->kind != Kind::kModule || !taught_.insert(info->type).second) continue;
    const auto type = py::handle(reinterpret_cast<PyObject*>(info->type));
    known(type, flatten, unflatten, py::arg("namespace") = py::handle(optree_namespace_.get()));
  }
}

Ref Peers::flatten_with_jax(const Tree& tree) const {
  return Ref::checked(PyObject_CallOneArg(jax_flatten_.get(), tree.object.get()));
}

Ref Peers::flatten_with_optree(const Tree& tree) const {
  PyObject* arguments[] = {tree.object.get(), optree_namespace_.get()};
  PyObject* keywords = tree.has_modules ? optree_keywords_.get() : nullptr;
  return Ref::checked(PyObject_Vectorcall(optree_flatten_.get(), arguments, 1, keywords));
}

void Peers::register_flatten(const std::vector<Tree>& trees) {
  using Flatten = Ref (Peers::*)(const Tree&) const;
  const std::pair<const char*, Flatten> peers[] = {{"jax_flatten/", &Peers::flatten_with_jax},
                                                   {"optree_flatten/", &Peers::flatten_with_optree}};
  for (const Tree& tree : trees) teach_optree(tree);
  for (const auto& [name, flatten] : peers) {
    for (const Tree& tree : trees) {
      const auto run = [this, &tree, flatten = flatten](benchmark::State& state) {
        reported(state, [&] {
          expect_leaves(tree, (this->*flatten)(tree));
          time_per_node(state, tree.nodes, [&] { (this->*flatten)(tree); });
        });
      };
      benchmark::RegisterBenchmark((name + tree.name).c_str(), run);
    }
  }
}

}  // namespace partax::bench
