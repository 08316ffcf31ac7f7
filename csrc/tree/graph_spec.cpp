#include "tree/graph_spec.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "tree/flatten.h"
#include "tree/match.h"
#include "tree/tree_spec.h"

namespace partax {
namespace {

struct GraphSpec {
  PyObject_HEAD
  TreeSpec* spec;       // sealed; its nodes that are objects of a graph "come back", so that matching keeps them
  std::uint64_t epoch;  // of the type table: a leaf may have become a node since
};

GraphSpec* as_graph(PyObject* self) noexcept { return reinterpret_cast<GraphSpec*>(self); }

bool is_object(const Node& node) noexcept {
  if (node.kind != Kind::kEntries) return false;
  const Layout::Aux aux = node.info->layout->aux;
  return aux == Layout::Aux::kItems || aux == Layout::Aux::kAttributes;
}

// Whether the leaves are arrays, which have no identity that a program could see.
bool are_arrays(const LeafBuffer& leaves) {
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (hooks().jax_array_type.is(Py_TYPE(leaves[i]))) continue;
    const LeafSort sort = TypeTable::instance().find(leaves[i]).sort;
    if (sort != LeafSort::kJaxArray && sort != LeafSort::kTracer && sort != LeafSort::kNumpyArray) return false;
  }
  return true;
}

bool have_each_once(std::vector<PyObject*> objects) {
  std::sort(objects.begin(), objects.end());
  return std::adjacent_find(objects.begin(), objects.end()) == objects.end();
}

PyObject* make(PyTypeObject* type, PyObject* args, PyObject* keywords) noexcept {
  return guarded<PyObject*>(nullptr, [&]() -> PyObject* {
    static char name[] = "tree";
    static char* names[] = {name, nullptr};
    PyObject* tree = nullptr;
    if (PyArg_ParseTupleAndKeywords(args, keywords, "O:GraphSpec", names, &tree) == 0) return nullptr;
    const std::uint64_t epoch = TypeTable::instance().epoch();
    TreeSpec loose;
    LeafBuffer leaves;
    FlattenOptions options;
    options.laid_out = true;
    with_path("tree", [&] { Flattener(loose, leaves, options).tree(tree); });
    auto sealed = with_path("a static value", [&] { return std::make_unique<TreeSpec>(loose.sealed(nullptr)); });
    for (Node& node : sealed->nodes) node.comes_back = is_object(node);
    Ref self = Ref::checked(type->tp_alloc(type, 0));
    as_graph(self.get())->spec = sealed.release();
    as_graph(self.get())->epoch = epoch;
    return self.release();
  });
}

PyObject* objects(PyObject* self, PyObject* tree) noexcept {
  return guarded<PyObject*>(nullptr, [&]() -> PyObject* {
    const Ref keep = Ref::borrow(self);
    LeafBuffer leaves;
    // Without a spec, the collector has cleared it.
    const TreeSpec* spec = as_graph(self)->spec;
    if (spec == nullptr || as_graph(self)->epoch != TypeTable::instance().epoch()) Py_RETURN_NONE;
    if (!match_tree(*spec, tree, leaves) || !are_arrays(leaves)) Py_RETURN_NONE;
    std::vector<PyObject*> found;
    found.reserve(leaves.num_nodes() + 1);
    if (spec->nodes[0].comes_back) found.push_back(tree);
    leaves.each_node([&](PyObject* node) { found.push_back(node); });
    if (!have_each_once(found)) Py_RETURN_NONE;
    Ref list = Ref::checked(PyList_New(static_cast<Py_ssize_t>(found.size())));
    for (std::size_t i = 0; i < found.size(); ++i) {
      PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), Py_NewRef(found[i]));
    }
    return list.release();
  });
}

int traverse(PyObject* self, visitproc visit, void* arg) noexcept {
  Py_VISIT(Py_TYPE(self));
  const TreeSpec* spec = as_graph(self)->spec;
  return spec == nullptr ? 0 : spec->traverse(visit, arg);
}

int clear(PyObject* self) noexcept {
  // What dies here may look at this object, which then knows no tree.
  const std::unique_ptr<TreeSpec> dropped(std::exchange(as_graph(self)->spec, nullptr));
  return 0;
}

void dealloc(PyObject* self) noexcept {
  PyObject_GC_UnTrack(self);
  clear(self);
  free_heap_object(self);
}

PyMethodDef methods[] = {
    {"objects", objects, METH_O,
     "The objects of a tree in the order of the spec, each of which it has once; None where the tree is another."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

Ref register_graph_spec_type() {
  static const char doc[] = "GraphSpec(tree): where a tree has objects that are known by identity.";
  PyType_Slot slots[] = {{Py_tp_doc, const_cast<char*>(doc)},
                         {Py_tp_new, reinterpret_cast<void*>(make)},
                         {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                         {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                         {Py_tp_clear, reinterpret_cast<void*>(clear)},
                         {Py_tp_methods, methods},
                         {0, nullptr}};
  PyType_Spec spec = {"partax._core.GraphSpec", sizeof(GraphSpec), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};
  return Ref::checked(PyType_FromSpec(&spec));
}

}  // namespace partax
