// Takes nodes of a tree, in the order of a spec, as long as they are unchanged: arrays where it has dynamic leaves, and
// else identical; and reads dictionaries along with the keys that a spec has for them, each in one pass. It runs no
// Python, so with a GIL it need not hold what it looks at.
#pragma once

#include <cstring>

#include "base/held_values.h"
#include "base/stack_room.h"
#include "pytree/leaf_buffer.h"
#include "pytree/tree_spec.h"
#include "types/instance_fields.h"

namespace partax {

class UnchangedReader {
 public:
  // `spec` is sealed, and `leaves` has room for all of its leaves. A key that is another object than the spec's is kept
  // in `leaves`, maybe more than once. Under `abstract` no static leaf is unchanged.
  UnchangedReader(const TreeSpec& spec, LeafBuffer& leaves, bool abstract)
      : spec_(spec),
        nodes_(spec.nodes.data()),
        identity_(spec.identity.data()),
        statics_(spec.statics.data()),
        leaves_(leaves),
        array_type_(reinterpret_cast<PyTypeObject*>(hooks.jax_array_type.get())),
        abstract_(abstract) {}

  // Takes the object of the node `at` with all below it. `at` becomes the node after those that have been taken, in
  // pre-order; false where these are not all.
  bool match(PyObject* object, std::size_t& at) {
    const CollectionPause pause;  // as asking for a `__dict__` may make it
    return match_all(&object, 1, at);
  }

  // Of a run of static leaves.
  bool are_identical(PyObject* const* objects, const Node& run) const {
    return std::memcmp(objects, identity_ + run.first_static, run.arity * sizeof(PyObject*)) == 0;
  }

  // Whether a static value is the very one of the spec; else it has to be compared, and an equal one noted for results.
  bool is_same_static(std::size_t index, PyObject* value) const {
    if (value == identity_[index]) return true;
    if (!statics_[index].is_known_callable(value)) return false;
    if (!statics_[index].is_object(value)) leaves_.add_own_static(index, value);
    return true;
  }

  // Of a kEntries node: `child(i, value)` for each child that is not in a row, and `other(index, value)` for a static
  // value that is not surely the spec's; `are_read(count)` after so many children, within the Reading of them. False
  // where `other` gives that, or the object is another. The entries may be in any order, or only in that of the spec.
  template <typename Child, typename Other, typename AreRead>
  bool visit_entries(const Node& node, PyObject* object, bool in_any_order, Child&& child, Other&& other,
                     AreRead&& are_read) {
    const Layout& layout = *node.info->layout;
    const EntryPlaces at(node);
    const std::size_t in_slots = layout.children.size();
    {
      const Reading reading(object);
      for (std::size_t i = 0; i < in_slots; ++i) {
        PyObject* value = layout.children[i].of(object);
        if (value == nullptr) return false;
        child(i, value);
      }
      for (std::size_t i = 0; i < layout.statics.size(); ++i) {
        PyObject* value = layout.statics[i].of(object);
        const std::size_t index = node.first_static + i;
        if (value == nullptr || !(is_same_static(index, value) || other(index, value))) return false;
      }
      are_read(in_slots);
    }
    if (layout.dictionary == Layout::Dictionary::kNone) return true;
    const Ref dict = layout.entries_of(object);
    if (!dict) return false;
    const auto put = [&](std::size_t place, PyObject* value) {
      if (place < at.children) {
        child(in_slots + place, value);
        return true;
      }
      const std::size_t index = at.statics + place - at.children;
      return is_same_static(index, value) || other(index, value);
    };
    const Reading reading(dict.get());
    bool is_read = visit_dict(dict.get(), at.keys, node.entries, put);
    if (!is_read && in_any_order) {
      expect_order_of(dict.get(), identity_ + at.keys, at.keys, node.entries);
      is_read = visit_dict(dict.get(), at.keys, node.entries, put);
    }
    if (is_read) are_read(node.arity);
    return is_read;
  }

  // Calls `visit(place, value)`, which must not run Python, in the order of the dictionary, until it gives false; a
  // place is one among the keys, which are the static values from `keys` on. False then, and where a key is not the
  // one that is expected next, or an equal string.
  template <typename Visit>
  bool visit_dict(PyObject* dict, std::size_t keys, std::size_t count, Visit&& visit) const {
    if (PyDict_GET_SIZE(dict) != static_cast<Py_ssize_t>(count)) return false;
    PyObject *key, *value;
    Py_ssize_t position = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t expected = spec_.key_order.empty() ? keys + i : spec_.key_order[keys + i];
      if (PyDict_Next(dict, &position, &key, &value) == 0) return false;
      if (key != identity_[expected] && !keep_equal(expected, key)) return false;
      if (!visit(expected - keys, value)) return false;
    }
    return true;
  }

  // Whether an OrderedDict has its keys in the order of the spec: its own order, which its dictionary may not have.
  bool is_in_order(PyObject* dict, std::size_t keys, std::size_t count) const;
  // From now on the keys are expected in the order that this dictionary has them in, within a Reading of it;
  // `dict_keys` are its own in the order of the spec. Does nothing where it has others.
  void expect_order_of(PyObject* dict, PyObject* const* dict_keys, std::size_t keys, std::size_t count) const;

  // The values of a dictionary whose keys are as expected.
  bool read_dict(const Node& node, PyObject* object, HeldValues& values) const {
    PyObject** const children = values.to_fill();
    const auto put = [=](std::size_t place, PyObject* value) { return (children[place] = value) != nullptr; };
    const Reading reading(object);
    if (!visit_dict(object, first_key_index(node), node.arity, put)) return false;
    values.hold_if_free_threaded(node.arity);
    return true;
  }

 private:
  // `owners` are the objects where they are owned; an array then goes over to the leaves.
  bool match_all(PyObject* const* objects, std::size_t count, std::size_t& at, HeldValues* owners = nullptr) {
    for (std::size_t i = 0; i < count;) {
      const Node& next = nodes_[at];
      if (next.kind == Kind::kDynamicLeaf) {
        if (Py_TYPE(objects[i]) != array_type_) return false;
        leaves_.push(kFreeThreaded && owners != nullptr ? owners->release(i) : Ref::borrow(objects[i]));
        ++i;
        ++at;
      } else if (next.in_slots) {
        if (!match_slots(next, objects[i++], at)) return false;
      } else if (next.kind == Kind::kStaticRun) {
        if (abstract_ || !are_identical(objects + i, next)) return false;
        i += next.arity;
        ++at;
      } else if (!match_node(next, objects[i++], at)) {
        return false;
      }
    }
    return true;
  }

  // As `match_node` does, sooner for what there may be thousands of.
  bool match_slots(const Node& node, PyObject* object, std::size_t& at) {
    if (Py_TYPE(object) != node.info->type) return false;
    const Layout& layout = *node.info->layout;
    if (layout.dictionary != Layout::Dictionary::kNone) {
      const Ref dict = layout.dictionary_slot[0].owned_of(object);
      if (!spec_.watched[at].is_unchanged(dict.get()) && !match_metadata(node, dict.get(), at)) return false;
    }
    const Reading reading(object);
    PyObject** to = leaves_.end();
    for (const Slot& slot : layout.children) {
      PyObject* value = slot.of(object);
      if (value == nullptr || Py_TYPE(value) != array_type_) return false;
      *to++ = value;
    }
    if (!slots_are_same(layout, node.first_static, object)) return false;
    if (node.is_passthrough) leaves_.keep_node(at, object);
    leaves_.own_next(node.arity);
    at += node.extent;
    return true;
  }

  bool match_metadata(const Node& node, PyObject* dict, std::size_t at) {
    if (dict == nullptr || !PyDict_CheckExact(dict)) return false;
    const EntryPlaces places(node);
    bool are_same = true;  // as objects
    const auto is_same = [&](std::size_t i, PyObject* value) {
      are_same = are_same && value == identity_[places.statics + i];
      return is_same_static(places.statics + i, value);
    };
    const Reading reading(dict);
    const std::size_t own_statics = leaves_.num_own_statics();
    if (!visit_dict(dict, places.keys, node.entries, is_same)) return false;
    if (are_same && leaves_.num_own_statics() == own_statics) spec_.watched[at].set(dict);
    return true;
  }

  bool match_node(const Node& node, PyObject* object, std::size_t& at) {
    if (node.info == nullptr) {
      const bool is_same = node.kind == Kind::kNone ? object == Py_None
                                                    : node.kind == Kind::kStaticLeaf && !abstract_ &&
                                                          is_same_static(node.first_static, object);
      at += is_same ? 1 : 0;
      return is_same;
    }
    if (Py_TYPE(object) != node.info->type || !stack_.is_free()) return false;
    if (PyObject* const* const row = contiguous_items(node, object))
      return match_children(node, object, row, at, nullptr);
    if (is_in_attribute(node)) return match_in_attribute(node, object, at);
    HeldValues children(node.arity);
    return read_children(node, object, children) && match_children(node, object, children.to_fill(), at, &children);
  }

  // Whether its children, and nothing else, are in the dictionary that is the only attribute of the object.
  static bool is_in_attribute(const Node& node) noexcept {
    return node.kind == Kind::kEntries && node.info->layout->dictionary == Layout::Dictionary::kInAttribute;
  }

  bool match_in_attribute(const Node& node, PyObject* object, std::size_t& at) {
    const Ref dict = node.info->layout->entries_of(object);
    if (!dict) return false;
    WatchedDict& watched = spec_.watched[at];
    if (watched.is_unchanged(dict.get()))
      return match_children(node, object, spec_.watched_children.data() + node.first_static, at, nullptr);
    HeldValues children(node.arity);
    const std::size_t own_statics = leaves_.num_own_statics();
    if (!read_dict(node, dict.get(), children)) return false;
    if (leaves_.num_own_statics() == own_statics && watched.set(dict.get()))
      std::copy_n(children.to_fill(), node.arity, spec_.watched_children.data() + node.first_static);
    return match_children(node, object, children.to_fill(), at, &children);
  }

  bool match_children(const Node& node, PyObject* object, PyObject* const* children, std::size_t& at,
                      HeldValues* owners) {
    if (node.is_passthrough) leaves_.keep_node(at, object);
    ++at;
    return match_all(children, node.arity, at, owners);
  }

  // Of an object that keeps its children in a row, which stays where it is meanwhile; null of others, and where they
  // may be others.
  static PyObject* const* contiguous_items(const Node& node, PyObject* object) {
    const auto arity = static_cast<Py_ssize_t>(node.arity);
    if (node.kind == Kind::kTuple || node.kind == Kind::kNamedTuple) {
      return PyTuple_GET_SIZE(object) == arity ? reinterpret_cast<PyTupleObject*>(object)->ob_item : nullptr;
    }
    const bool is_list = node.kind == Kind::kList && !kFreeThreaded && PyList_GET_SIZE(object) == arity;
    return is_list ? reinterpret_cast<PyListObject*>(object)->ob_item : nullptr;
  }

  bool slots_are_same(const Layout& layout, std::size_t index, PyObject* object) const {
    for (const Slot& slot : layout.statics) {
      PyObject* value = slot.of(object);
      if (value == nullptr || !is_same_static(index++, value)) return false;
    }
    return true;
  }

  // The children of any other object, in the order of the spec; false where it may be another.
  bool read_children(const Node& node, PyObject* object, HeldValues& values) {
    PyObject** const children = values.to_fill();
    switch (node.kind) {
      case Kind::kList:
        return values.hold_items_of(object);
      case Kind::kDict:
        return read_dict(node, object, values);
      case Kind::kModule:
      case Kind::kDataclass:
      case Kind::kDeclared: {
        if (node.has_wrapper_fields) return false;
        const auto put = [&](std::size_t field, PyObject* value) {
          if (field >= node.arity) return is_same_static(node.first_static + field - node.arity, value);
          children[field] = value;
          return true;
        };
        const FieldReader fields(object, *node.info);
        const Reading reading(fields.place(*node.info));
        if (!fields.visit_in_order(*node.info, put)) return false;
        values.hold_if_free_threaded(node.arity);
        return true;
      }
      case Kind::kEntries: {
        const Ref row = node.info->layout->contiguous_items(object);
        if (!node.info->layout->items.empty() && !(row && values.hold_items_of(row.get()))) return false;
        const auto put = [children](std::size_t i, PyObject* value) { children[i] = value; };
        const auto differs = [](std::size_t, PyObject*) { return false; };
        return visit_entries(node, object, false, put, differs,
                             [&](std::size_t count) { values.hold_if_free_threaded(count); });
      }
      default:
        return false;
    }
  }

  // Whether a key is identical, or an equal string.
  bool is_key(std::size_t index, PyObject* key) const;
  // Whether it is an equal string, which then is the call's own.
  bool keep_equal(std::size_t index, PyObject* key) const;

  const TreeSpec& spec_;
  const Node* nodes_;
  PyObject* const* identity_;
  const StaticValue* statics_;
  LeafBuffer& leaves_;
  PyTypeObject* array_type_;
  const StackReserve stack_ = stack_reserve();
  bool abstract_;
};

}  // namespace partax
