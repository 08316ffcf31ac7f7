// Reads nodes that have nothing but arrays below them, as most of a model's have, beside a spec.
#pragma once

#include <algorithm>

#include "base/instance_fields.h"
#include "tree/dictionary_reader.h"

namespace partax {

class ArrayChildren {
 public:
  // `spec` is sealed, and `leaves` has room for all of its leaves.
  ArrayChildren(const TreeSpec& spec, LeafBuffer& leaves, const DictionaryReader& reader)
      : nodes_(spec.nodes.data()),
        num_nodes_(spec.nodes.size()),
        identity_(spec.identity.data()),
        known_(spec.known_dictionaries),
        leaves_(leaves),
        reader_(reader),
        array_type_(reinterpret_cast<PyTypeObject*>(hooks().jax_array_type.get())) {}

  // Writes the arrays to the end of the buffer, in one pass that runs no Python, where all else is identical; false
  // where it is not, or the node is of another family.
  bool read(const Node& node, PyObject* object) {
    if (Py_TYPE(object) != node.info->type) return false;
    switch (node.kind) {
      case Kind::kTuple:
      case Kind::kNamedTuple:
        return PyTuple_GET_SIZE(object) == static_cast<Py_ssize_t>(node.arity) &&
               items_are_leaves(reinterpret_cast<PyTupleObject*>(object)->ob_item, node.arity);
      case Kind::kList:
        return PyList_GET_SIZE(object) == static_cast<Py_ssize_t>(node.arity) &&
               items_are_leaves(reinterpret_cast<PyListObject*>(object)->ob_item, node.arity);
      case Kind::kDict:
        return PyDict_GET_SIZE(object) == static_cast<Py_ssize_t>(node.arity) && values_are_leaves(node, object);
      case Kind::kModule:
      case Kind::kDataclass:
      case Kind::kDeclared:
        return !node.has_wrapper_fields && fields_are_leaves(node, object);
      case Kind::kEntries:
        return node.info->layout->items.empty() && entries(node, object, leaves_.end(), kNoOther) &&
               are_leaves(node.arity);
      default:
        return false;
    }
  }

  // Takes the first of these children, as long as they are read from slots and are as they were; gives how many. `at`
  // is the index of the first one's node, and then of the next one's. Runs no Python.
  std::size_t take_slots(PyObject* const* children, std::size_t count, std::size_t& at) {
    PyObject** const first_leaf = leaves_.end();
    PyObject** leaves = first_leaf;
    std::size_t index = at, taken = 0;
    for (; taken < count && slots_are_same(index, children[taken], leaves); ++taken) {
      const Node& node = nodes_[index];
      if (node.comes_back) leaves_.keep_node(index, children[taken]);
      leaves += node.arity;
      index += 1 + node.arity;
    }
    leaves_.take(static_cast<std::size_t>(leaves - first_leaf));
    at = index;
    return taken;
  }

  // The children of a node with entries that keeps nothing but a dictionary, where that is the one that is known. Null
  // where it is not. Borrowed from it, so good until any Python runs.
  PyObject* const* known_children(std::size_t index, PyObject* object) const {
    const Layout& layout = *nodes_[index].info->layout;
    if (!layout.children.empty() || !layout.statics.empty()) return nullptr;
    Ref own;
    PyObject* const dict = layout.entries_of(object, own);
    if (dict == nullptr || !known_.hold(index, dict, layout.owner_of_entries(object))) return nullptr;
    return known_.children(index);
  }

  // Writes the children of a node with entries to `to`, borrowed, in one pass that runs no Python. `other(index,
  // value)` is called, and must not run Python, for what is static and not identical; false where that is, or in
  // another order.
  template <typename Other>
  bool entries(const Node& node, PyObject* object, PyObject** to, Other&& other) const {
    const Layout& layout = *node.info->layout;
    Ref own;
    PyObject* const dict = layout.entries_of(object, own);
    for (const Slot& slot : layout.children) {
      *to = slot.of(object);
      if (*to++ == nullptr) return false;
    }
    std::size_t first = node.first_static;
    for (const Slot& slot : layout.statics) {
      PyObject* value = slot.of(object);
      if (value == nullptr || (value != identity_[first] && !other(first, value))) return false;
      ++first;
    }
    if (layout.dictionary == Layout::Dictionary::kNone) return true;
    if (dict == nullptr) return false;
    const std::size_t index = index_of(node), children = node.arity - layout.children.size();
    PyObject* const owner = layout.owner_of_entries(object);
    if (known_.hold(index, dict, owner)) {
      std::copy_n(known_.children(index), children, to);
      return true;
    }
    bool is_same = true;
    const auto put = [&, to](std::size_t place, PyObject* value) {
      if (place < children) {
        to[place] = value;
        return true;
      }
      const std::size_t found = first + place - children;
      if (value == identity_[found]) return true;
      is_same = false;
      return other(found, value);
    };
    if (!reader_.visit_identical(dict, first + node.entries - children, node.entries, put)) return false;
    if (is_same) known_.remember(index, num_nodes_, dict, owner, to, children);
    return true;
  }

  // As `read`, of a dictionary.
  bool values_are_leaves(const Node& node, PyObject* object) {
    PyObject** const leaves = leaves_.end();
    PyTypeObject* const array_type = array_type_;
    return reader_.visit_identical(object, first_key(node), node.arity, [=](std::size_t place, PyObject* value) {
      leaves[place] = value;
      return Py_TYPE(value) == array_type;
    });
  }

 private:
  // Whether a node is `in_slots`, its children are arrays, which are written to `leaves`, and all else is as it was
  // found to be right before.
  bool slots_are_same(std::size_t index, PyObject* object, PyObject** leaves) const {
    const Node& node = nodes_[index];
    if (!node.in_slots || Py_TYPE(object) != node.info->type) return false;
    const Layout& layout = *node.info->layout;
    for (const Slot& slot : layout.children) {
      PyObject* value = slot.of(object);
      if (value == nullptr || Py_TYPE(value) != array_type_) return false;
      *leaves++ = value;
    }
    if (!layout.statics.empty()) {
      PyObject* const* statics = identity_ + node.first_static;
      for (const Slot& slot : layout.statics) {
        PyObject* value = slot.of(object);
        if (value == nullptr || value != *statics++) return false;
      }
    }
    if (layout.dictionary == Layout::Dictionary::kNone) return true;
    PyObject* dict = layout.dictionary_slot[0].of(object);
    return dict != nullptr && known_.hold(index, dict, nullptr);
  }

  bool items_are_leaves(PyObject* const* items, std::size_t count) {
    PyObject** const leaves = leaves_.end();
    for (std::size_t i = 0; i < count; ++i) {
      if (Py_TYPE(items[i]) != array_type_) return false;
      leaves[i] = items[i];
    }
    return true;
  }

  bool fields_are_leaves(const Node& node, PyObject* object) {
    const std::size_t children = node.arity, index = index_of(node);
    PyObject** const leaves = leaves_.end();
    PyObject* const* const statics = identity_ + node.first_static;
    PyTypeObject* const array_type = array_type_;
    const FieldReader reader(object, *node.info);
    const bool is_in_dictionary = node.info->offsets.empty();
    if (is_in_dictionary && known_.hold(index, reader.dict(), object)) {
      std::copy_n(known_.children(index), children, leaves);
      return are_leaves(children);
    }
    const bool is_read = reader.visit_in_order(*node.info, [=](std::size_t field, PyObject* value) {
      if (field >= children) return value == statics[field - children];
      leaves[field] = value;
      return Py_TYPE(value) == array_type;
    });
    if (is_read && is_in_dictionary) known_.remember(index, num_nodes_, reader.dict(), object, leaves, children);
    return is_read;
  }

  // Whether those that have been written to the end of the buffer are arrays.
  bool are_leaves(std::size_t count) const {
    PyObject* const* const leaves = leaves_.end();
    for (std::size_t i = 0; i < count; ++i) {
      if (Py_TYPE(leaves[i]) != array_type_) return false;
    }
    return true;
  }

  std::size_t index_of(const Node& node) const noexcept { return static_cast<std::size_t>(&node - nodes_); }

  static constexpr auto kNoOther = [](std::size_t, PyObject*) { return false; };

  const Node* nodes_;
  std::size_t num_nodes_;
  PyObject* const* identity_;
  KnownDictionaries& known_;
  LeafBuffer& leaves_;
  const DictionaryReader reader_;
  PyTypeObject* array_type_;
};

}  // namespace partax
