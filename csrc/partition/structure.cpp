#include "partition/structure.h"

#include <structmember.h>

#include "base/boxed.h"
#include "base/error_path.h"
#include "base/python_hooks.h"
#include "tree/rebuild.h"
#include "tree/spec_data.h"

namespace partax {
namespace {

const TreeSpec& tree_of(PyObject* object) { return Boxed<TreeSpec>::in(object); }

// Of the nodes alone, as jax's: aux data need not be hashable.
Py_hash_t hash(PyObject* self) noexcept {
  return guarded<Py_hash_t>(-1, [&] {
    const auto hash = static_cast<Py_hash_t>(tree_of(self).hash);
    return hash == -1 ? -2 : hash;
  });
}

bool is_structure(PyObject* object) noexcept { return Py_TYPE(object) == Boxed<TreeSpec>::type; }

PyObject* compare(PyObject* self, PyObject* other, int operation) noexcept {
  if (!is_structure(other) || (operation != Py_EQ && operation != Py_NE)) Py_RETURN_NOTIMPLEMENTED;
  return guarded<PyObject*>(nullptr, [&] {
    const Ref keep_self = Ref::borrow(self), keep_other = Ref::borrow(other);
    const bool equal = with_path("structure", [&] { return are_alike(tree_of(self), tree_of(other)); });
    return PyBool_FromLong(equal == (operation == Py_EQ));
  });
}

PyObject* repr(PyObject* self) noexcept {
  return guarded<PyObject*>(nullptr, [&] {
    const Ref keep = Ref::borrow(self);
    const Ref text = python::tree_text(spec_data(tree_of(self), root_of("")));
    return PyUnicode_FromFormat("Structure(%U)", text.get());
  });
}

PyObject* num_leaves(PyObject* self, void*) noexcept {
  return guarded<PyObject*>(nullptr, [&] { return PyLong_FromSize_t(tree_of(self).num_dynamic); });
}

PyObject* copy(PyObject* self, PyObject*) noexcept { return Py_NewRef(self); }

PyObject* reduce(PyObject* self, PyObject*) noexcept {
  return guarded<PyObject*>(nullptr, [&] {
    const Ref keep = Ref::borrow(self);
    return python::reduced(self).release();
  });
}

PyMethodDef methods[] = {{"__copy__", copy, METH_NOARGS, nullptr},
                         {"__deepcopy__", copy, METH_O, nullptr},
                         {"__reduce__", reduce, METH_NOARGS, nullptr},
                         {nullptr, nullptr, 0, nullptr}};
PyMemberDef members[] = {{"__weaklistoffset__", T_PYSSIZET, offsetof(Boxed<TreeSpec>, weakrefs), READONLY, nullptr},
                         {nullptr, 0, 0, 0, nullptr}};
PyGetSetDef getset[] = {{"num_leaves", num_leaves, nullptr, "How many leaves the tree has.", nullptr},
                        {nullptr, nullptr, nullptr, nullptr, nullptr}};

constexpr char kDoc[] =
    "The structure of a tree without its leaves: what `partax.tree.structure` returns, and `flatten` second.\n\n"
    "Example:\n  >>> structure = partax.tree.structure({'a': 1, 'b': [2, 3]})\n"
    "  >>> structure.num_leaves, structure == partax.tree.structure({'a': 0, 'b': [0, 0]})\n  (3, True)\n\n"
    "Two are equal if their nodes are, and their keys, static fields and aux data are equal by `==`, as jax's are. It\n"
    "is immutable and hashable.";

// By a list, since CPython loses the items of a tuple that it cannot make longer.
Ref as_tuple(PyObject* items) {
  if (PyTuple_CheckExact(items)) return Ref::borrow(items);
  const Ref list = PyList_CheckExact(items) ? Ref::borrow(items) : Ref::checked(PySequence_List(items));
  return Ref::checked(PyList_AsTuple(list.get()));
}

}  // namespace

void register_structure_type(PyObject* module) {
  Boxed<TreeSpec>::type = add_boxed_type<TreeSpec>(module, "partax.tree.Structure", kDoc,
                                                   {{Py_tp_repr, reinterpret_cast<void*>(repr)},
                                                    {Py_tp_hash, reinterpret_cast<void*>(hash)},
                                                    {Py_tp_richcompare, reinterpret_cast<void*>(compare)},
                                                    {Py_tp_methods, methods},
                                                    {Py_tp_getset, getset},
                                                    {Py_tp_members, members}},
                                                   Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION);
}

Ref make_structure(TreeSpec tree) { return box(std::make_unique<TreeSpec>(std::move(tree))); }

FlattenOptions in_runs(PyObject* is_leaf) {
  FlattenOptions options = every_leaf(is_leaf);
  options.dynamic_runs = true;
  options.unsortable = PyExc_ValueError;  // as jax's
  return options;
}

Ref unflatten(PyObject* structure, PyObject* leaves) {
  if (!is_structure(structure)) raise_error(PyExc_TypeError, "expected a Structure");
  const Ref keep = Ref::borrow(structure);
  const TreeSpec& tree = tree_of(structure);
  const Ref given = as_tuple(leaves);  // which nobody else can change meanwhile
  const Py_ssize_t count = PyTuple_GET_SIZE(given.get());
  if (static_cast<std::size_t>(count) != tree.num_dynamic) {
    PyErr_Format(PyExc_ValueError, "`leaves`: found %zd, expected the %zu of the structure", count, tree.num_dynamic);
    throw PythonError{};
  }
  ListedLeaves row(given);
  return rebuild(tree, row);
}

}  // namespace partax
