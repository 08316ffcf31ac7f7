#include "partition/flat_partition.h"

#include "base/error_path.h"
#include "base/held_values.h"
#include "base/owned_reads.h"
#include "base/python_hooks.h"
#include "partition/split.h"
#include "tree/rebuild.h"
#include "tree/static_node.h"

namespace partax {
namespace {

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
  const Ref distinct = python::told_apart(tuple_of(keys));
  for (std::size_t i = 0; i < keys.size(); ++i) {
    keys[i] = Ref::borrow(PyList_GET_ITEM(distinct.get(), static_cast<Py_ssize_t>(i)));
  }
}

}  // namespace

Ref flat_partition(PyObject* tree, PyObject* filters, PyObject* separator, bool rest_is_static, PyObject* is_leaf,
                   const std::string& name) {
  return with_path(name.c_str(), [&] {
    const std::string between = separator == Py_None ? std::string() : exact_text(separator);
    SplitTree parts;
    split(parts, tree, filters,
          SplitOptions{null_if_none(is_leaf), rest_is_static, true, separator == Py_None ? nullptr : &between});
    tell_apart(parts.keys);
    const Py_ssize_t count = PyTuple_GET_SIZE(filters) + (rest_is_static ? 0 : 1);
    std::vector<Ref> result(1);  // the spec, then the dictionaries
    for (Py_ssize_t i = 0; i < count; ++i) result.push_back(Ref::checked(PyDict_New()));
    for (std::size_t i = 0; i < parts.keys.size(); ++i) {
      checked_int(PyDict_SetItem(result[parts.part[i] + 1].get(), parts.keys[i].get(), parts.leaves[i]));
    }
    for (StaticValue& value : parts.spec.statics) value.own();
    result[0] = make_flat_spec(std::move(parts.spec), tuple_of(std::move(parts.keys)), Ref::borrow(separator));
    return tuple_of(std::move(result));
  });
}

Ref flat_combine(PyObject* spec, PyObject* dicts) {
  if (!is_flat_spec(spec)) {
    PyErr_Format(PyExc_TypeError, "`spec`: found a `%s`, expected the FlatSpec that flat_partition returned",
                 Py_TYPE(spec)->tp_name);
    throw PythonError{};
  }
  const Ref keep = Ref::borrow(spec);
  const Py_ssize_t count = PyTuple_GET_SIZE(dicts);
  Py_ssize_t total = 0;
  for (Py_ssize_t i = 0; i < count; ++i) total += PyDict_GET_SIZE(PyTuple_GET_ITEM(dicts, i));
  PyObject* const keys = keys_of_flat_spec(spec);
  const Py_ssize_t num_keys = PyTuple_GET_SIZE(keys);
  // Every key found, and as many entries as keys: then none is missing, unexpected or twice there.
  bool right = total == num_keys;
  HeldValues leaves(static_cast<std::size_t>(num_keys));
  Py_ssize_t latest = 0;  // neighbours are often of one dictionary
  for (Py_ssize_t i = 0; right && i < num_keys; ++i) {
    Ref leaf;
    for (Py_ssize_t tried = 0; tried < count && !leaf; ++tried) {
      const Py_ssize_t at = (latest + tried) % count;
      leaf = dict_item(PyTuple_GET_ITEM(dicts, at), PyTuple_GET_ITEM(keys, i));
      if (leaf && tried > 0) latest = at;
    }
    right = static_cast<bool>(leaf);
    leaves.keep(std::move(leaf));
  }
  if (!right) {
    const Ref error = python::wrong_keys(keys, dicts);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.get())), error.get());
    throw PythonError{};
  }
  ListedLeaves source(leaves.to_fill(), static_cast<std::size_t>(num_keys));
  return rebuild(loose_tree(spec), source);
}

}  // namespace partax
