// Takes nodes of a tree, in the order of a spec, as long as they are unchanged: arrays where it has dynamic leaves, and
// else identical. It runs no Python, so it need not hold what it looks at.
#pragma once

#include <cstring>

#include "base/collection_pause.h"
#include "base/instance_fields.h"
#include "base/stack_room.h"
#include "tree/compared_callables.h"
#include "tree/dictionary_reader.h"

namespace partax {

class UnchangedReader {
 public:
  // `spec` is sealed, and `leaves` has room for all of its leaves. Under `abstract` no static leaf is unchanged.
  UnchangedReader(const TreeSpec& spec, LeafBuffer& leaves, const ComparedCallables& compared, bool abstract)
      : spec_(spec),
        nodes_(spec.nodes.data()),
        identity_(spec.identity.data()),
        known_(spec.known_dictionaries),
        leaves_(leaves),
        reader_(spec, leaves),
        compared_(compared),
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
    return value == identity_[index] || compared_.hold(index, value);
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
    if (layout.dictionary != Layout::Dictionary::kNone) {
      PyObject* dict = layout.dictionary_slot[0].of(object);
      if (dict == nullptr) return false;
      if (!known_.has(at, dict, nullptr) && !read_metadata(node, at, dict)) return false;
    }
    if (node.comes_back) leaves_.keep_node(at, object);
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
    PyObject* const* const children = children_of(node, object, at);
    if (children == nullptr) return false;
    if (node.comes_back) leaves_.keep_node(at, object);
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

  // In the order of the spec; null where they may be others. Borrowed from the object.
  PyObject* const* children_of(const Node& node, PyObject* object, std::size_t at) {
    const auto arity = static_cast<Py_ssize_t>(node.arity);
    switch (node.kind) {
      case Kind::kTuple:
      case Kind::kNamedTuple:
        return items_of_tuple(object, arity);
      case Kind::kList:
        return items_of_list(object, arity);
      case Kind::kDict:
        return is_known(at, object, nullptr) || read_items(node, at, object) ? known_.children(at) : nullptr;
      case Kind::kModule:
      case Kind::kDataclass:
      case Kind::kDeclared:
        return !node.has_wrapper_fields && read_fields(node, at, object) ? known_.children(at) : nullptr;
      case Kind::kEntries:
        if (!node.info->layout->items.empty()) return row_of(node, object);
        return read_slots_and_entries(node, at, object) ? known_.children(at) : nullptr;
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

  // Of an object that keeps its children in a list or tuple.
  PyObject* const* row_of(const Node& node, PyObject* object) const {
    const Layout& layout = *node.info->layout;
    if (!slots_are_same(layout, node.first_static, object)) return nullptr;
    PyObject* const row = layout.items[0].of(object);
    if (row == nullptr || !(PyList_CheckExact(row) || PyTuple_CheckExact(row))) return nullptr;
    const auto arity = static_cast<Py_ssize_t>(node.arity);
    return PyList_CheckExact(row) ? items_of_list(row, arity) : items_of_tuple(row, arity);
  }
  bool slots_are_same(const Layout& layout, std::size_t index, PyObject* object) const {
    for (const Slot& slot : layout.statics) {
      PyObject* value = slot.of(object);
      if (value == nullptr || !is_same_static(index++, value)) return false;
    }
    return true;
  }

  bool read_items(const Node& node, std::size_t at, PyObject* dict) {
    Reading reading(*this, at);
    const auto put = [&](std::size_t place, PyObject* value) { return reading.child(place, value); };
    return reader_.visit_identical(dict, first_key(node), node.arity, put) && reading.remember(dict, nullptr);
  }

  bool read_fields(const Node& node, std::size_t at, PyObject* object) {
    const FieldReader reader(object, *node.info);
    const bool is_in_dictionary = node.info->offsets.empty();
    if (is_in_dictionary && is_known(at, reader.dict(), object)) return true;
    Reading reading(*this, at);
    const std::size_t children = node.arity, first = node.first_static;
    const auto put = [&](std::size_t field, PyObject* value) {
      return field < children ? reading.child(field, value) : reading.fixed(first + field - children, value);
    };
    if (!reader.visit_in_order(*node.info, put)) return false;
    return !is_in_dictionary || reading.remember(reader.dict(), object);
  }

  bool read_slots_and_entries(const Node& node, std::size_t at, PyObject* object) {
    const Layout& layout = *node.info->layout;
    ensure_room();
    PyObject** children = known_.children(at);
    for (const Slot& slot : layout.children) {
      *children = slot.of(object);
      if (*children++ == nullptr) return false;
    }
    if (!slots_are_same(layout, node.first_static, object)) return false;
    if (layout.dictionary == Layout::Dictionary::kNone) return true;
    Ref own;
    PyObject* const dict = layout.entries_of(object, own);
    if (dict == nullptr) return false;
    PyObject* const owner = layout.owner_of_entries(object);
    return is_known(at, dict, owner) || read_entries(node, at, dict, owner);
  }

  bool read_entries(const Node& node, std::size_t at, PyObject* dict, PyObject* owner) {
    Reading reading(*this, at);
    const EntryPlaces places(node);
    const std::size_t in_slots = node.info->layout->children.size();
    const auto put = [&](std::size_t place, PyObject* value) {
      return place < places.children ? reading.child(in_slots + place, value)
                                     : reading.fixed(places.statics + place - places.children, value);
    };
    return reader_.visit_identical(dict, places.keys, node.entries, put) && reading.remember(dict, owner);
  }

  // Of a node that is `in_slots`.
  bool read_metadata(const Node& node, std::size_t at, PyObject* dict) {
    return PyDict_CheckExact(dict) && read_entries(node, at, dict, nullptr);
  }

  // Of a dictionary that is not known to be as it was: where its children go, and what is found out.
  class Reading {
   public:
    Reading(UnchangedReader& reader, std::size_t at) : reader_(reader), at_(at) {
      reader.ensure_room();
      reader.known_.forget(at);
      children_ = reader.known_.children(at);
    }
    bool child(std::size_t place, PyObject* value) {
      are_as_before_ = are_as_before_ && children_[place] == value;
      children_[place] = value;
      return true;
    }
    bool fixed(std::size_t index, PyObject* value) {
      return value == reader_.identity_[index] ||
             (reader_.compared_.hold(index, value) && reader_.known_.set_changing(at_, index, value));
    }
    // When all is read.
    bool remember(PyObject* dict, PyObject* owner) const {
      reader_.known_.remember(at_, dict, owner, are_as_before_);
      return true;
    }

   private:
    UnchangedReader& reader_;
    std::size_t at_;
    PyObject** children_;
    bool are_as_before_ = true;
  };

  bool is_known(std::size_t at, PyObject* dict, PyObject* owner) const {
    return known_.has(at, dict, owner) &&
           known_.are_still(at, [&](std::size_t index, PyObject* value) { return compared_.hold(index, value); });
  }
  void ensure_room() {
    if (!known_.has_room()) known_.make_room(spec_);
  }

  const TreeSpec& spec_;
  const Node* nodes_;
  PyObject* const* identity_;
  KnownDictionaries& known_;
  LeafBuffer& leaves_;
  const DictionaryReader reader_;
  const ComparedCallables& compared_;
  PyTypeObject* array_type_;
  const StackReserve stack_ = stack_reserve();
  bool abstract_;
};

}  // namespace partax
