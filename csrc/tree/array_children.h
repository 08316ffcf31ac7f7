// Reads nodes that have nothing but arrays below them, as most of a model's have, beside a spec.
#pragma once

#include "base/instance_fields.h"
#include "tree/dictionary_reader.h"

namespace partax {

class ArrayChildren {
 public:
  // `spec` is sealed, and `leaves` has room for all of its leaves.
  ArrayChildren(const TreeSpec& spec, LeafBuffer& leaves, const DictionaryReader& reader)
      : identity_(spec.identity.data()),
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
        return entries_are_leaves(node, object);
      default:
        return false;
    }
  }

  // The same of a dictionary.
  bool values_are_leaves(const Node& node, PyObject* object) {
    PyObject** const leaves = leaves_.end();
    PyTypeObject* const array_type = array_type_;
    return reader_.visit_identical(object, first_key(node), node.arity, [=](std::size_t place, PyObject* value) {
      leaves[place] = value;
      return Py_TYPE(value) == array_type;
    });
  }

 private:
  bool items_are_leaves(PyObject* const* items, std::size_t count) {
    PyObject** const leaves = leaves_.end();
    for (std::size_t i = 0; i < count; ++i) {
      if (Py_TYPE(items[i]) != array_type_) return false;
      leaves[i] = items[i];
    }
    return true;
  }

  bool fields_are_leaves(const Node& node, PyObject* object) {
    const std::size_t children = node.arity;
    PyObject** const leaves = leaves_.end();
    PyObject* const* const statics = identity_ + node.first_static - children;
    PyTypeObject* const array_type = array_type_;
    return FieldReader(object, *node.info).visit_in_order(*node.info, [=](std::size_t field, PyObject* value) {
      if (field >= children) return value == statics[field];
      leaves[field] = value;
      return Py_TYPE(value) == array_type;
    });
  }

  bool entries_are_leaves(const Node& node, PyObject* object) {
    const Layout& layout = *node.info->layout;
    const EntryPlaces at(node);
    PyObject** leaves = leaves_.end();
    for (const Slot& slot : layout.children) {
      PyObject* value = slot.of(object);
      if (value == nullptr || Py_TYPE(value) != array_type_) return false;
      *leaves++ = value;
    }
    PyObject* const* statics = identity_ + node.first_static;
    for (const Slot& slot : layout.statics) {
      if (slot.of(object) != *statics++) return false;
    }
    if (layout.dictionary == Layout::Dictionary::kNone) return true;
    Ref own;
    PyObject* dict = layout.entries_of(object, own);
    PyTypeObject* const array_type = array_type_;
    const std::size_t children = at.children;
    return dict != nullptr &&
           reader_.visit_identical(dict, at.keys, node.entries, [=](std::size_t place, PyObject* value) {
             if (place >= children) return value == statics[place - children];
             leaves[place] = value;
             return Py_TYPE(value) == array_type;
           });
  }

  PyObject* const* identity_;
  LeafBuffer& leaves_;
  const DictionaryReader reader_;
  PyTypeObject* array_type_;
};

}  // namespace partax
