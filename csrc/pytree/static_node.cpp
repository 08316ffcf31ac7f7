#include "pytree/static_node.h"

#include <atomic>
#include <memory>

#include "base/boxed.h"
#include "base/error_path.h"
#include "base/python_hooks.h"
#include "pytree/spec_data.h"
#include "pytree/tree_spec.h"
#include "static_key/static_value.h"

namespace partax {
namespace {

PyTypeObject* flat_spec_type = nullptr;
PyTypeObject* static_type = nullptr;

// What both types hold. The hash and the key are computed at their first use.
struct StaticPart {
  TreeSpec tree;                           // holds its values: it rebuilds the tree
  Ref keys;                                // FlatSpec: the path of each dynamic leaf, a tuple
  Ref separator;                           // FlatSpec: of the keys, or None
  std::unique_ptr<const TreeSpec> sealed;  // what comparisons take, once made
  std::size_t hash = 0;
  std::atomic<bool> is_hashed{false};

  int traverse(visitproc visit, void* arg) const { return visit_all(visit, arg, keys, separator, tree, sealed); }
};

using StaticNode = Boxed<StaticPart>;

StaticPart& part_of(PyObject* object) { return StaticNode::in(object); }

// ---- Slots of both types.

template <typename Body>
auto located(PyObject* self, Body&& body) {
  const char* const root = Py_TYPE(self) == static_type ? "value" : "pytree";
  return with_static_path(part_of(self).tree, [&] { return root_of(root); }, body);
}

// What callables read, and what values without a hash are equal to, is recorded with the hash, which a key asks for
// when it is made.
void seal(PyObject* self) {
  StaticPart& part = part_of(self);
  if (part.sealed) return;
  located(self, [&] {
    auto sealed = std::make_unique<TreeSpec>(part.tree.sealed(nullptr));
    if (!part.sealed) part.sealed = std::move(sealed);
  });
}

std::size_t hash_of(PyObject* self) {
  StaticPart& part = part_of(self);
  if (part.is_hashed.load(std::memory_order_acquire)) return part.hash;
  const std::vector<Node>& nodes = part.tree.nodes;
  std::size_t hash = part.tree.hash, node = 0;
  bool may_change = false;
  for (std::size_t i = 0; i < part.tree.statics.size(); ++i) {
    while (node + 1 < nodes.size() && nodes[node + 1].first_static <= i) ++node;
    const Ref value = part.tree.statics[i].value();
    // Static fields and aux data of nodes are compared; leaves and keys have to be hashed.
    const bool is_named = nodes[node].kind == Kind::kModule || nodes[node].kind == Kind::kDataclass ||
                          is_named_by_functions(nodes[node].kind);
    const auto hash_of_value = [&] {
      const Form form = value ? form_of(value.get()) : Form::kAtom;
      may_change = may_change || form == Form::kCallable || form == Form::kGeneric || is_composite(form);
      return value ? static_hash(value.get(), is_named ? Unhashable::kCompare : Unhashable::kRefuse) : 0;
    };
    const std::size_t value_hash = located(self, [&] { return of_value(i, hash_of_value); });
    hash = mix(hash, value_hash);
  }
  if (may_change) seal(self);
  part.hash = hash;
  part.is_hashed.store(true, std::memory_order_release);
  return hash;
}

bool equal_nodes(PyObject* a, PyObject* b) {
  if (hash_of(a) != hash_of(b)) return false;  // which refuses, with a path, what cannot be compared
  const StaticPart &one = part_of(a), &other = part_of(b);
  if (!are_equal(one.separator.get(), other.separator.get()) || !are_equal(one.keys.get(), other.keys.get()))
    return false;
  seal(a);
  return located(b, [&] { return one.sealed->equals(other.tree); });
}

PyObject* node_compare(PyObject* self, PyObject* other, int operation) noexcept {
  if (Py_TYPE(self) != Py_TYPE(other) || (operation != Py_EQ && operation != Py_NE)) Py_RETURN_NOTIMPLEMENTED;
  if (self == other) return PyBool_FromLong(operation == Py_EQ);
  return guarded<PyObject*>(nullptr, [&] {
    const Ref keep_self = Ref::borrow(self), keep_other = Ref::borrow(other);
    return PyBool_FromLong(equal_nodes(self, other) == (operation == Py_EQ));
  });
}

// Takes no turn where it is known: jax asks for it while it has a lock of its own.
Py_hash_t node_hash(PyObject* self) noexcept {
  const auto valid = [](std::size_t hash) {
    return static_cast<Py_hash_t>(hash) == -1 ? -2 : static_cast<Py_hash_t>(hash);
  };
  const StaticPart* part = reinterpret_cast<StaticNode*>(self)->value;
  if (part != nullptr && part->is_hashed.load(std::memory_order_acquire)) return valid(part->hash);
  return guarded<Py_hash_t>(-1, [&] { return valid(hash_of(self)); });
}

PyObject* node_repr(PyObject* self) noexcept {
  return guarded<PyObject*>(nullptr, [&] { return python::node_text(Ref::borrow(self)).release(); });
}

PyObject* node_copy(PyObject* self, PyObject*) noexcept { return Py_NewRef(self); }

template <Ref StaticPart::* part>
PyObject* get_part(PyObject* self, void*) noexcept {
  return guarded<PyObject*>(nullptr, [&] { return Py_NewRef((part_of(self).*part).get()); });
}

// ---- Static.

PyObject* static_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) noexcept {
  return guarded<PyObject*>(nullptr, [&] {
    PyObject* value = nullptr;
    static char name[] = "value";
    static char* names[] = {name, nullptr};
    if (PyArg_ParseTupleAndKeywords(args, kwargs, "O:Static", names, &value) == 0) throw PythonError{};
    auto part = std::make_unique<StaticPart>();
    part->tree.nodes.push_back(Node{Kind::kStaticLeaf, false, false, false, false, 0, 0, 1, 0, nullptr});
    part->tree.statics.push_back(StaticValue::loose(Ref::borrow(value)));
    with_path("value", [&] { part->tree.statics[0].own(); });
    Ref node = box(std::move(part), type);
    hash_of(node.get());  // refuses what cannot be static
    return node.release();
  });
}

PyObject* static_value_of(PyObject* self, void*) noexcept {
  return guarded<PyObject*>(nullptr, [&] { return part_of(self).tree.statics[0].value().release(); });
}

PyMethodDef static_methods[] = {{"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, nullptr},
                                {"__copy__", node_copy, METH_NOARGS, nullptr},
                                {"__deepcopy__", node_copy, METH_O, nullptr},
                                {nullptr, nullptr, 0, nullptr}};
PyGetSetDef spec_getset[] = {{"paths", get_part<&StaticPart::keys>, nullptr,
                              "The path of each leaf that is in a dictionary, in tree order.", nullptr},
                             {"separator", get_part<&StaticPart::separator>, nullptr,
                              "What stands between the segments of the paths, or None.", nullptr},
                             {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyGetSetDef static_getset[] = {{"value", static_value_of, nullptr,
                                "The value; a copy, where it is or holds a mutable built-in container.", nullptr},
                               {nullptr, nullptr, nullptr, nullptr, nullptr}};

constexpr char kSpecDoc[] =
    "The structure of a tree whose leaves are in dictionaries: what `flat_partition` returns first.\n\n"
    "Example:\n  >>> spec, arrays = partax.flat_partition({'a': jnp.ones(2), 'n': 3}, partax.is_array, rest='static')\n"
    "  >>> spec.paths\n  (\"['a']\",)\n"
    "  >>> partax.flat_combine(spec, arrays)['n']\n  3\n\n"
    "It is immutable and hashable, and equal to another exactly if no traced program could tell their static parts\n"
    "apart. As a pytree it has no leaves: as an argument it costs as much as one static value.";
constexpr char kStaticDoc[] =
    "Static(value)\n--\n\n"
    "Wrap any value as a pytree without leaves, which is static in `jax.jit` and `filter_jit`.\n\n"
    "Example:\n  >>> jax.jit(lambda x, mode: x + 1 if mode.value == 'up' else x - 1)(1, partax.tree.Static('up'))\n"
    "  Array(2, dtype=int32, weak_type=True)\n\n"
    "Args:\n  value: anything that can be a static value; of mutable built-in containers a snapshot is taken.\n\n"
    "Raises:\n  TypeError: the value is or holds an array, or cannot be hashed; the message has the path.\n\n"
    "Two are equal exactly if no traced program could tell their values apart: `Static(1)` is not `Static(True)`.";

PyTypeObject* add_node_type(PyObject* module, const char* name, const char* doc, PyMethodDef* methods,
                            PyGetSetDef* getset, newfunc construct) {
  std::vector<PyType_Slot> slots = {{Py_tp_repr, reinterpret_cast<void*>(node_repr)},
                                    {Py_tp_hash, reinterpret_cast<void*>(node_hash)},
                                    {Py_tp_richcompare, reinterpret_cast<void*>(node_compare)},
                                    {Py_tp_methods, methods},
                                    {Py_tp_getset, getset}};
  if (construct != nullptr) slots.push_back({Py_tp_new, reinterpret_cast<void*>(construct)});
  return add_boxed_type<StaticPart>(module, name, doc, std::move(slots), Py_TPFLAGS_IMMUTABLETYPE);
}

}  // namespace

void register_static_node_types(PyObject* module) {
  flat_spec_type = add_node_type(module, "partax.tree.FlatSpec", kSpecDoc, static_methods + 1, spec_getset, nullptr);
  static_type = add_node_type(module, "partax.tree.Static", kStaticDoc, static_methods, static_getset, static_new);
}

Ref make_flat_spec(TreeSpec tree, Ref keys, Ref separator) {
  auto part = std::make_unique<StaticPart>();
  part->tree = std::move(tree);
  part->keys = std::move(keys);
  part->separator = std::move(separator);
  return box(std::move(part), flat_spec_type);
}

const TreeSpec& loose_tree(PyObject* spec) {
  if (Py_TYPE(spec) != flat_spec_type) raise_error(PyExc_TypeError, "expected a FlatSpec");
  return part_of(spec).tree;
}

}  // namespace partax
