#include "partition/static_node.h"

#include <structmember.h>

#include <memory>
#include <unordered_set>

#include "base/tree_path.h"
#include "partition/split.h"
#include "statics/static_value.h"
#include "tree/described.h"
#include "tree/rebuild.h"
#include "tree/tree_spec.h"

namespace partax {
namespace {

PyTypeObject* flat_spec_type = nullptr;
PyTypeObject* static_type = nullptr;

// What both types hold. It never changes, but for what is computed when it is first asked for.
struct StaticPart {
  TreeSpec tree;                           // holds its values: it rebuilds the tree
  Ref keys;                                // FlatSpec: the path of each dynamic leaf, a tuple
  Ref separator;                           // FlatSpec: of the keys, or None
  std::unique_ptr<const TreeSpec> sealed;  // what comparisons take, once made
  std::size_t hash = 0;
  bool is_hashed = false;
};

struct StaticNode {
  PyObject_HEAD
  StaticPart* part;
  PyObject* weakrefs;
};

StaticNode* as_node(PyObject* object) noexcept { return reinterpret_cast<StaticNode*>(object); }

StaticPart& part_of(PyObject* object) {
  StaticPart* part = as_node(object)->part;
  if (part == nullptr) {
    PyErr_SetString(PyExc_ReferenceError, "partax: the object has been cleared by the garbage collector");
    throw PythonError{};
  }
  return *part;
}

const char* root_name(PyObject* object) noexcept { return Py_TYPE(object) == static_type ? "value" : "pytree"; }

Ref make_node(PyTypeObject* type, std::unique_ptr<StaticPart> part) {
  Ref object = Ref::checked(type->tp_alloc(type, 0));
  as_node(object.get())->part = part.release();
  return object;
}

// ---- Slots of both types.

int node_traverse(PyObject* self, visitproc visit, void* arg) noexcept {
  Py_VISIT(Py_TYPE(self));
  const StaticPart* part = as_node(self)->part;
  if (part == nullptr) return 0;
  if (const int status = part->tree.traverse(visit, arg)) return status;
  for (const Ref& treedef : part->tree.treedefs) Py_VISIT(treedef.get());
  return part->sealed ? part->sealed->traverse(visit, arg) : 0;
}

int node_clear(PyObject* self) noexcept {
  const std::unique_ptr<StaticPart> dropped(std::exchange(as_node(self)->part, nullptr));
  return 0;
}

void node_dealloc(PyObject* self) noexcept {
  PyObject_GC_UnTrack(self);
  if (as_node(self)->weakrefs != nullptr) PyObject_ClearWeakRefs(self);
  node_clear(self);
  free_heap_object(self);
}

[[noreturn]] void raise_at(const WalkError& error, PyObject* self, std::size_t index) {
  error.raise(static_path(part_of(self).tree, root_of(root_name(self)), index));
  throw PythonError{};
}

// The values of callables are written down with the hash, which a key asks for when it is made.
void seal(PyObject* self) {
  StaticPart& part = part_of(self);
  if (part.sealed) return;
  try {
    auto sealed = std::make_unique<const TreeSpec>(part.tree.sealed(nullptr));
    if (!part.sealed) part.sealed = std::move(sealed);
  } catch (const WalkError& error) {
    raise_at(error, self, error.origin());
  }
}

std::size_t hash_of(PyObject* self) {
  StaticPart& part = part_of(self);
  if (part.is_hashed) return part.hash;
  std::unordered_set<std::size_t> aux_data;
  for (const Node& node : part.tree.nodes) {
    if (node.kind == Kind::kRegistered) aux_data.insert(node.first_static);
  }
  std::size_t hash = part.tree.hash;
  bool may_hold_callables = false;
  for (std::size_t i = 0; i < part.tree.statics.size(); ++i) {
    const Ref value = part.tree.statics[i].value();
    try {
      const Form form = value ? form_of(value.get()) : Form::kAtom;
      may_hold_callables = may_hold_callables || form == Form::kCallable || is_composite(form);
      const auto unhashable = aux_data.count(i) > 0 ? Unhashable::kCompare : Unhashable::kRefuse;
      hash = (hash ^ (value ? static_hash(value.get(), unhashable) : 0)) * 0x9E3779B97F4A7C15ull + (hash >> 31);
    } catch (const WalkError& error) {
      raise_at(error, self, i);
    }
  }
  if (may_hold_callables) seal(self);
  part.hash = hash;
  part.is_hashed = true;
  return hash;
}

const TreeSpec& sealed_of(PyObject* self) {
  hash_of(self);  // refuses, with a path, what cannot be compared
  seal(self);
  return *part_of(self).sealed;
}

bool are_alike(const Ref& a, const Ref& b) {
  return a.get() == b.get() || checked_int(PyObject_RichCompareBool(a.get(), b.get(), Py_EQ)) == 1;
}

bool equal_nodes(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (hash_of(a) != hash_of(b)) return false;
  if (!are_alike(part_of(a).separator, part_of(b).separator) || !are_alike(part_of(a).keys, part_of(b).keys)) {
    return false;
  }
  const TreeSpec& sealed = sealed_of(a);
  try {
    return sealed.equals(part_of(b).tree);
  } catch (const WalkError& error) {
    raise_at(error, b, error.origin());
  }
}

PyObject* node_compare(PyObject* self, PyObject* other, int operation) noexcept {
  if (Py_TYPE(self) != Py_TYPE(other) || (operation != Py_EQ && operation != Py_NE)) Py_RETURN_NOTIMPLEMENTED;
  return guarded<PyObject*>(nullptr, [&] {
    const Ref keep_self = Ref::borrow(self), keep_other = Ref::borrow(other);
    return PyBool_FromLong(equal_nodes(self, other) == (operation == Py_EQ));
  });
}

Py_hash_t node_hash(PyObject* self) noexcept {
  return guarded<Py_hash_t>(-1, [&] {
    const auto hash = static_cast<Py_hash_t>(hash_of(self));
    return hash == -1 ? -2 : hash;
  });
}

PyObject* node_repr(PyObject* self) noexcept {
  return guarded<PyObject*>(nullptr, [&] {
    const char* name = Py_TYPE(self) == static_type ? "Static(" : "FlatSpec(";
    return exact_unicode(
               name +
               exact_text(call_python("partax._tree.described", "tree_text", described(part_of(self).tree, root_of("")))
                              .get()) +
               ")")
        .release();
  });
}

PyObject* node_copy(PyObject* self, PyObject*) noexcept { return Py_NewRef(self); }

// ---- FlatSpec.

PyObject* spec_paths(PyObject* self, void*) noexcept {
  return guarded<PyObject*>(nullptr, [&] { return Py_NewRef(part_of(self).keys.get()); });
}

PyObject* spec_separator(PyObject* self, void*) noexcept {
  return guarded<PyObject*>(nullptr, [&] { return Py_NewRef(part_of(self).separator.get()); });
}

// Whether two keys have one hash.
bool may_repeat(const std::vector<Ref>& keys) {
  std::size_t size = 16;
  while (size < 2 * keys.size()) size *= 2;
  std::vector<Py_hash_t> seen(size, -1);  // no object has the hash -1
  for (const Ref& key : keys) {
    const Py_hash_t hash = PyObject_Hash(key.get());
    if (hash == -1) throw PythonError{};
    std::size_t at = static_cast<std::size_t>(hash) & (size - 1);
    while (seen[at] != -1 && seen[at] != hash) at = (at + 1) & (size - 1);
    if (seen[at] == hash) return true;
    seen[at] = hash;
  }
  return false;
}

// Gives the later ones of several leaves whose paths are written alike other keys.
void tell_apart(std::vector<Ref>& keys) {
  if (!may_repeat(keys)) return;
  const Ref distinct = call_python("partax._partition.flat", "told_apart", tuple_of(keys));
  for (std::size_t i = 0; i < keys.size(); ++i) {
    keys[i] = Ref::borrow(PyList_GET_ITEM(distinct.get(), static_cast<Py_ssize_t>(i)));
  }
}

// ---- Static.

PyObject* static_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) noexcept {
  return guarded<PyObject*>(nullptr, [&] {
    PyObject* value = nullptr;
    static char name[] = "value";
    static char* names[] = {name, nullptr};
    if (PyArg_ParseTupleAndKeywords(args, kwargs, "O:Static", names, &value) == 0) throw PythonError{};
    auto part = std::make_unique<StaticPart>();
    part->tree.nodes.push_back(Node{Kind::kStaticLeaf, false, false, 0, 1, 0, nullptr});
    part->tree.statics.push_back(StaticValue::loose(Ref::borrow(value)));
    with_path("value", [&] { part->tree.statics[0].own(); });
    Ref node = make_node(type, std::move(part));
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
PyMethodDef* const spec_methods = static_methods + 1;  // FlatSpec is not generic
PyMemberDef node_members[] = {{"__weaklistoffset__", T_PYSSIZET, offsetof(StaticNode, weakrefs), READONLY, nullptr},
                              {nullptr, 0, 0, 0, nullptr}};
PyGetSetDef spec_getset[] = {
    {"paths", spec_paths, nullptr, "The path of each leaf that is in a dictionary, in tree order.", nullptr},
    {"separator", spec_separator, nullptr, "What stands between the segments of the paths, or None.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyGetSetDef static_getset[] = {{"value", static_value_of, nullptr,
                                "The value; a copy, where it is or holds a mutable built-in container.", nullptr},
                               {nullptr, nullptr, nullptr, nullptr, nullptr}};

constexpr char kSpecDoc[] =
    "The structure of a tree whose leaves are in dictionaries: what `flat_partition` returns first.\n\n"
    "It is immutable and hashable, and equal to another exactly if no traced program could tell their static parts\n"
    "apart. As a pytree it has no leaves, so that `jax.jit` and `filter_jit` take it as an argument at the cost of "
    "one\n"
    "object, whatever it holds.";
constexpr char kStaticDoc[] =
    "Static(value)\n--\n\n"
    "Wraps any value as a pytree without leaves, which `jax.jit` and `filter_jit` take as static.\n\n"
    "Args:\n  value: anything that can be a static value; of mutable built-in containers a snapshot is taken.\n\n"
    "Raises:\n  TypeError: the value is or holds an array, or cannot be hashed; the message has the path.\n\n"
    "Two are equal exactly if no traced program could tell their values apart: `Static(1)` is not `Static(True)`.";

Ref make_type(const char* name, const char* doc, PyMethodDef* methods, PyGetSetDef* getset, newfunc construct) {
  PyType_Slot slots[] = {{Py_tp_doc, const_cast<char*>(doc)},
                         {Py_tp_dealloc, reinterpret_cast<void*>(node_dealloc)},
                         {Py_tp_traverse, reinterpret_cast<void*>(node_traverse)},
                         {Py_tp_clear, reinterpret_cast<void*>(node_clear)},
                         {Py_tp_repr, reinterpret_cast<void*>(node_repr)},
                         {Py_tp_hash, reinterpret_cast<void*>(node_hash)},
                         {Py_tp_richcompare, reinterpret_cast<void*>(node_compare)},
                         {Py_tp_methods, methods},
                         {Py_tp_getset, getset},
                         {Py_tp_members, node_members},
                         {construct == nullptr ? 0 : Py_tp_new, reinterpret_cast<void*>(construct)},
                         {0, nullptr}};
  unsigned int flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE;
  if (construct == nullptr) flags |= Py_TPFLAGS_DISALLOW_INSTANTIATION;
  PyType_Spec spec = {name, sizeof(StaticNode), 0, flags, slots};
  return Ref::checked(PyType_FromSpec(&spec));
}

}  // namespace

Ref register_static_node_types() {
  Ref flat_spec = make_type("partax.FlatSpec", kSpecDoc, spec_methods, spec_getset, nullptr);
  Ref wrapper = make_type("partax.Static", kStaticDoc, static_methods, static_getset, static_new);
  Ref types = Ref::checked(PyTuple_Pack(2, flat_spec.get(), wrapper.get()));
  flat_spec_type = reinterpret_cast<PyTypeObject*>(flat_spec.release());  // kept for the life of the process
  static_type = reinterpret_cast<PyTypeObject*>(wrapper.release());
  return types;
}

Ref flat_partition(PyObject* tree, PyObject* filters, PyObject* separator, bool rest_is_static, PyObject* is_leaf) {
  return with_path("pytree", [&] {
    const std::string between = separator == nullptr ? std::string() : exact_text(separator);
    SplitTree parts;
    SplitOptions options;
    options.is_leaf = is_leaf;
    options.keyed = true;
    options.rest_is_static = rest_is_static;
    if (separator != nullptr) options.separator = &between;
    split(parts, tree, filters, options);
    tell_apart(parts.keys);
    const Py_ssize_t count = PyTuple_GET_SIZE(filters) + (rest_is_static ? 0 : 1);
    std::vector<Ref> result(1);  // the spec, then the dictionaries
    for (Py_ssize_t i = 0; i < count; ++i) result.push_back(Ref::checked(PyDict_New()));
    for (std::size_t i = 0; i < parts.keys.size(); ++i) {
      checked_int(PyDict_SetItem(result[parts.part[i] + 1].get(), parts.keys[i].get(), parts.leaves[i]));
    }
    auto part = std::make_unique<StaticPart>();
    part->tree = std::move(parts.spec);
    for (StaticValue& value : part->tree.statics) value.own();
    part->keys = tuple_of(std::move(parts.keys));
    part->separator = Ref::borrow(separator == nullptr ? Py_None : separator);
    result[0] = make_node(flat_spec_type, std::move(part));
    return tuple_of(std::move(result));
  });
}

Ref flat_combine(PyObject* spec, PyObject* dicts) {
  if (Py_TYPE(spec) != flat_spec_type) {
    PyErr_Format(PyExc_TypeError, "`spec`: found a `%s`, expected the FlatSpec that flat_partition returned",
                 Py_TYPE(spec)->tp_name);
    throw PythonError{};
  }
  const Ref keep = Ref::borrow(spec);
  const StaticPart& part = part_of(spec);
  const Py_ssize_t count = PyTuple_GET_SIZE(dicts);
  Py_ssize_t total = 0;
  for (Py_ssize_t i = 0; i < count; ++i) total += PyDict_GET_SIZE(PyTuple_GET_ITEM(dicts, i));
  PyObject* const keys = part.keys.get();
  const Py_ssize_t num_keys = PyTuple_GET_SIZE(keys);
  // Every key found, and as many entries as keys: then none is missing, unexpected or twice there.
  bool right = total == num_keys;
  std::vector<Ref> leaves;
  leaves.reserve(static_cast<std::size_t>(num_keys));
  Py_ssize_t latest = 0;  // neighbours are often of one dictionary
  for (Py_ssize_t i = 0; right && i < num_keys; ++i) {
    Ref leaf;
    for (Py_ssize_t tried = 0; tried < count && !leaf; ++tried) {
      const Py_ssize_t at = (latest + tried) % count;
      leaf = Ref::borrow(PyDict_GetItemWithError(PyTuple_GET_ITEM(dicts, at), PyTuple_GET_ITEM(keys, i)));
      if (!leaf && PyErr_Occurred() != nullptr) throw PythonError{};
      if (leaf && tried > 0) latest = at;
    }
    right = static_cast<bool>(leaf);
    leaves.push_back(std::move(leaf));
  }
  if (!right) {
    const Ref error = call_python("partax._partition.flat", "wrong_keys", keys, dicts);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.get())), error.get());
    throw PythonError{};
  }
  ListedLeaves source(leaves);
  return rebuild(part.tree, source);
}

bool is_static_node(PyObject* object) noexcept {
  return Py_TYPE(object) == flat_spec_type || Py_TYPE(object) == static_type;
}

const TreeSpec& sealed_tree(PyObject* node) { return sealed_of(node); }

const TreeSpec& loose_tree(PyObject* node) { return part_of(node).tree; }

}  // namespace partax
