// Makes instances of classes with a Layout as their registered functions do: an empty one, in which the children are
// set before the rest.
#pragma once

#include "tree/given_statics.h"
#include "tree/new_instance.h"

namespace partax {

class MadeEntries {
 public:
  MadeEntries(const GivenStatics& statics, const EmptyInstances& instances)
      : statics_(statics), instances_(instances) {}

  // `child()` gives the children, one after the other; or the tuple of them where the class keeps them in a row.
  template <typename Child>
  Ref make(const Node& node, Child&& child) {
    const Layout& layout = *node.info->layout;
    const EntryPlaces at(node);
    const Ref object = instances_.make(*node.info);
    for (const Slot& slot : layout.items) set(slot, object, child());
    for (const Slot& slot : layout.children) set(slot, object, child());
    set_others(layout, node, object);
    // The entries, those of children first.
    const auto each_entry = [&](auto&& visit) {
      for (std::size_t i = 0; i < at.children; ++i) visit(statics_.at(at.keys + i).get(), child().get());
      for (std::size_t i = at.children; i < node.entries; ++i) {
        visit(statics_.at(at.keys + i).get(), statics_.at(at.statics + i - at.children).get());
      }
    };
    if (layout.dictionary == Layout::Dictionary::kNone) return object;
    if (layout.dictionary == Layout::Dictionary::kOwn) {
      each_entry([&](PyObject* name, PyObject* value) { set_attribute(object, name, value); });
      return object;
    }
    Ref dict = allocated([] { return PyDict_New(); });
    each_entry([&](PyObject* key, PyObject* value) { checked_int(PyDict_SetItem(dict.get(), key, value)); });
    if (layout.dictionary == Layout::Dictionary::kInAttribute) {
      set_attribute(object, layout.dictionary_name.get(), dict.get());
    } else {
      set(layout.dictionary_slot[0], object, std::move(dict));
    }
    return object;
  }

  // Of a node that is `in_slots`.
  template <typename Child>
  Ref make_in_slots(const Node& node, Child&& child) {
    const Layout& layout = *node.info->layout;
    Ref dict;
    if (layout.dictionary != Layout::Dictionary::kNone) dict = static_entries(node, layout);
    const Ref object = instances_.make(*node.info);
    for (const Slot& slot : layout.children) set(slot, object, child());
    set_others(layout, node, object);
    if (dict) set(layout.dictionary_slot[0], object, std::move(dict));
    return object;
  }

 private:
  void set_others(const Layout& layout, const Node& node, const Ref& object) {
    for (std::size_t i = 0; i < layout.statics.size(); ++i) {
      set(layout.statics[i], object, statics_.at(node.first_static + i));
    }
    for (std::size_t i = 0; i < layout.made.size(); ++i) set(layout.made[i], object, made(layout.makers[i].get()));
  }

  Ref static_entries(const Node& node, const Layout& layout) const {
    const std::size_t count = node.entries, first = node.first_static + layout.statics.size();
    Ref dict = allocated([] { return PyDict_New(); });
    for (std::size_t i = 0; i < count; ++i) {
      checked_int(PyDict_SetItem(dict.get(), statics_.at(first + count + i).get(), statics_.at(first + i).get()));
    }
    return dict;
  }

  // Nobody has the object yet, and its slot is empty.
  static void set(const Slot& slot, const Ref& object, Ref value) { slot.place(object.get()) = value.release(); }

  // What a maker gives, which all of one result share.
  Ref made(PyObject* maker) {
    for (const auto& [known, value] : made_) {
      if (known == maker) return value;
    }
    made_.emplace_back(maker, Ref::checked(PyObject_CallNoArgs(maker)));
    return made_.back().second;
  }

  const GivenStatics& statics_;
  const EmptyInstances& instances_;
  std::vector<std::pair<PyObject*, Ref>> made_;
};

}  // namespace partax
