// Takes nodes of a tree, in the order of a spec, as long as they are unchanged: arrays where it has dynamic leaves, and
// else identical. It runs no Python, so with a GIL it need not hold what it looks at.
#pragma once

#include <cstring>

#include "base/collection_pause.h"
#include "base/held_values.h"
#include "base/stack_room.h"
#include "classes/instance_fields.h"
#include "tree/dictionary_reader.h"

namespace partax {

class UnchangedReader {
 public:
  // `spec` is sealed, and `leaves` has room for all of its leaves. Under `abstract` no static leaf is unchanged.
  UnchangedReader(const TreeSpec& spec, LeafBuffer& leaves, bool abstract)
      : nodes_(spec.nodes.data()),
        identity_(spec.identity.data()),
        statics_(spec.statics.data()),
        leaves_(leaves),
        reader_(spec, leaves),
        array_type_(reinterpret_cast<PyTypeObject*>(hooks().jax_array_type.get())),
        abstract_(abstract) {}

  // Takes the object of the node `at` with all below it. `at` becomes the node after those that have been taken, in
  // pre-order; false where these are not all.
  bool take(PyObject* object, std::size_t& at) {
    const CollectionPause pause;  // as asking for a `__dict__` may make it
    return take_all(&object, 1, at);
  }

  // Of a run of static leaves.
  bool are_identical(PyObject* const* objects, const Node& run) const {
    return std::memcmp(objects, identity_ + run.first_static, run.arity * sizeof(PyObject*)) == 0;
  }

  // Whether a static value is surely the spec's; else it has to be compared.
  bool is_same_static(std::size_t index, PyObject* value) const {
    return value == identity_[index] || statics_[index].is_repeated(value);
  }

 private:
  bool take_all(PyObject* const* objects, std::size_t count, std::size_t& at) {
    for (std::size_t i = 0; i < count;) {
      const Node& next = nodes_[at];
      if (next.in_slots) {
        if (!take_slots(next, objects[i++], at)) return false;
      } else if (next.kind == Kind::kDynamicLeaf) {
        if (Py_TYPE(objects[i]) != array_type_) return false;
        leaves_.push(objects[i++]);
        ++at;
      } else if (next.kind == Kind::kStaticRun) {
        if (abstract_ || !are_identical(objects + i, next)) return false;
        i += next.arity;
        ++at;
      } else if (!take_node(next, objects[i++], at)) {
        return false;
      }
    }
    return true;
  }

  bool take_slots(const Node& node, PyObject* object, std::size_t& at) {
    if (Py_TYPE(object) != node.info->type) return false;
    const Layout& layout = *node.info->layout;
    if (layout.dictionary != Layout::Dictionary::kNone) {
      const Ref dict = layout.dictionary_slot[0].owned_of(object);
      if (!dict || !PyDict_CheckExact(dict.get()) || !read_entries(node, dict.get(), nullptr)) return false;
    }
    const Reading reading(object);
    PyObject** to = leaves_.end();
    for (const Slot& slot : layout.children) {
      PyObject* value = slot.of(object);
      if (value == nullptr || Py_TYPE(value) != array_type_) return false;
      *to++ = value;
    }
    PyObject* const* statics = identity_ + node.first_static;
    for (const Slot& slot : layout.statics) {
      PyObject* value = slot.of(object);
      if (value == nullptr || value != *statics++) return false;
    }
    if (node.is_passthrough) leaves_.keep_node(at, object);
    leaves_.take(node.arity);
    at += 1 + node.arity;
    return true;
  }

  bool take_node(const Node& node, PyObject* object, std::size_t& at) {
    if (node.info == nullptr) {
      const bool is_same = node.kind == Kind::kNone ? object == Py_None
                                                    : node.kind == Kind::kStaticLeaf && !abstract_ &&
                                                          is_same_static(node.first_static, object);
      at += is_same ? 1 : 0;
      return is_same;
    }
    if (Py_TYPE(object) != node.info->type || !stack_.is_free()) return false;
    if (PyObject* const* const row = row_of(node, object)) return take_children(node, object, row, at);
    HeldValues children(node.arity);
    return read_children(node, object, children) && take_children(node, object, children.to_fill(), at);
  }

  bool take_children(const Node& node, PyObject* object, PyObject* const* children, std::size_t& at) {
    if (node.is_passthrough) leaves_.keep_node(at, object);
    ++at;
    return node.only_leaves ? take_arrays(children, node.arity, at) : take_all(children, node.arity, at);
  }

  bool take_arrays(PyObject* const* objects, std::size_t count, std::size_t& at) {
    PyObject** const to = leaves_.end();
    std::size_t taken = 0;
    for (; taken < count && Py_TYPE(objects[taken]) == array_type_; ++taken) to[taken] = objects[taken];
    leaves_.take(taken);
    at += taken;
    return taken == count;
  }

  // Of an object that keeps its children in a row, which nobody moves meanwhile; null of others, and where they may be
  // others.
  PyObject* const* row_of(const Node& node, PyObject* object) const {
    const auto arity = static_cast<Py_ssize_t>(node.arity);
    switch (node.kind) {
      case Kind::kTuple:
      case Kind::kNamedTuple:
        return items_of_tuple(object, arity);
      case Kind::kList:
        return kFreeThreaded ? nullptr : items_of_list(object, arity);
      case Kind::kEntries: {
        const Layout& layout = *node.info->layout;
        if (kFreeThreaded || layout.items.empty() || !slots_are_same(layout, node.first_static, object)) return nullptr;
        PyObject* const row = layout.items[0].of(object);
        if (row == nullptr || !(PyList_CheckExact(row) || PyTuple_CheckExact(row))) return nullptr;
        return PyList_CheckExact(row) ? items_of_list(row, arity) : items_of_tuple(row, arity);
      }
      default:
        return nullptr;
    }
  }
  static PyObject* const* items_of_tuple(PyObject* tuple, Py_ssize_t arity) {
    return PyTuple_GET_SIZE(tuple) == arity ? reinterpret_cast<PyTupleObject*>(tuple)->ob_item : nullptr;
  }
  static PyObject* const* items_of_list(PyObject* list, Py_ssize_t arity) {
    return PyList_GET_SIZE(list) == arity ? reinterpret_cast<PyListObject*>(list)->ob_item : nullptr;
  }

  bool slots_are_same(const Layout& layout, std::size_t index, PyObject* object) const {
    for (const Slot& slot : layout.statics) {
      PyObject* value = slot.of(object);
      if (value == nullptr || !is_same_static(index++, value)) return false;
    }
    return true;
  }

  // The children of any other object, in the order of the spec; false where it may be another.
  bool read_children(const Node& node, PyObject* object, HeldValues& values) const {
    PyObject** const children = values.to_fill();
    switch (node.kind) {
      case Kind::kList:
        return values.hold_items_of(object);
      case Kind::kDict: {
        const Reading reading(object);
        const auto put = [=](std::size_t place, PyObject* value) { return (children[place] = value) != nullptr; };
        if (!reader_.visit_identical(object, first_key(node), node.arity, put)) return false;
        values.hold_if_free(node.arity);
        return true;
      }
      case Kind::kModule:
      case Kind::kDataclass:
      case Kind::kDeclared: {
        if (node.has_wrapper_fields) return false;
        const auto put = [&](std::size_t field, PyObject* value) {
          return place_or_compare(field, value, children, node.arity, node.first_static);
        };
        const FieldReader fields(object, *node.info);
        const Reading reading(fields.place(*node.info));
        if (!fields.visit_in_order(*node.info, put)) return false;
        values.hold_if_free(node.arity);
        return true;
      }
      case Kind::kEntries:
        return node.info->layout->items.empty() ? read_slots_and_entries(node, object, values)
                                                : read_row(node, object, values);
      default:
        return false;
    }
  }

  bool read_row(const Node& node, PyObject* object, HeldValues& children) const {
    const Layout& layout = *node.info->layout;
    const Ref row = layout.items[0].owned_of(object);
    if (!row || !(PyList_CheckExact(row.get()) || PyTuple_CheckExact(row.get()))) return false;
    if (!children.hold_items_of(row.get())) return false;
    const Reading reading(object);
    return slots_are_same(layout, node.first_static, object);
  }

  bool read_slots_and_entries(const Node& node, PyObject* object, HeldValues& values) const {
    const Layout& layout = *node.info->layout;
    {
      const Reading reading(object);
      PyObject** child = values.to_fill();
      for (const Slot& slot : layout.children) {
        *child = slot.of(object);
        if (*child++ == nullptr) return false;
      }
      if (!slots_are_same(layout, node.first_static, object)) return false;
      values.hold_if_free(layout.children.size());
    }
    if (layout.dictionary == Layout::Dictionary::kNone) return true;
    const Ref dict = layout.entries_of(object);
    return dict && read_entries(node, dict.get(), &values);
  }

  // `values`, null where none of the entries is a child, has those in slots already.
  bool read_entries(const Node& node, PyObject* dict, HeldValues* values) const {
    const EntryPlaces places(node);
    PyObject** const children = values == nullptr ? nullptr : values->to_fill() + node.info->layout->children.size();
    const auto put = [&](std::size_t place, PyObject* value) {
      return place_or_compare(place, value, children, places.children, places.statics);
    };
    const Reading reading(dict);
    if (!reader_.visit_identical(dict, places.keys, node.entries, put)) return false;
    if (values != nullptr) values->hold_if_free(node.arity);
    return true;
  }

  // A value of a dictionary: the child at its place, or else a static value, of which the first is `first`.
  bool place_or_compare(std::size_t place, PyObject* value, PyObject** children, std::size_t num_children,
                        std::size_t first) const {
    if (place >= num_children) return is_same_static(first + place - num_children, value);
    children[place] = value;
    return true;
  }

  const Node* nodes_;
  PyObject* const* identity_;
  const StaticValue* statics_;
  LeafBuffer& leaves_;
  const DictionaryReader reader_;
  PyTypeObject* array_type_;
  const StackReserve stack_ = stack_reserve();
  bool abstract_;
};

}  // namespace partax
