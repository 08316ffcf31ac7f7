// Makes objects without running code of their class, and without a garbage collection; and of these the instances of
// classes with a Layout.
#pragma once

#include "base/held_values.h"
#include "tree/rebuild.h"

namespace partax {

// A result of `make()`, a new reference. A rebuilt model counts for hundreds of allocations, and most often replaces
// one of the same size next, which takes them all back.
template <typename Make>
Ref allocated(Make&& make) {
  const CollectionPause pause;
  return Ref::checked(make());
}

// Makes instances of which nothing is set.
class EmptyInstances {
 public:
  Ref make(const TypeInfo& info) const {
    const auto make_now = [&] { return PyBaseObject_Type.tp_new(info.type, no_arguments_.get(), nullptr); };
    // An abstract class raises, and runs Python to say why.
    const bool is_abstract = (info.type->tp_flags & Py_TPFLAGS_IS_ABSTRACT) != 0;
    return is_abstract ? Ref::checked(make_now()) : allocated(make_now);
  }

 private:
  const Ref no_arguments_ = Ref::checked(PyTuple_New(0));
};

// Sets an attribute of a new instance as `object.__setattr__` does, which keeps it out of a dictionary where it can.
inline void set_attribute(const Ref& object, PyObject* name, PyObject* value) {
  checked_int(PyObject_GenericSetAttr(object.get(), name, value));
}

// The static values of an object that is being made from a spec.
class GivenStatics {
 public:
  GivenStatics(const TreeSpec& spec, const LeafSource& source)
      : spec_(spec), source_(source.has_own_statics() ? &source : nullptr) {}

  bool has(std::size_t index) const { return own(index) != nullptr || !spec_.statics[index].absent(); }

  Ref at(std::size_t index) const {
    PyObject* known = own(index);
    if (known == nullptr && !spec_.identity.empty()) known = spec_.identity[index];
    return known != nullptr ? Ref::borrow(known) : stored(index);
  }

 private:
  Ref stored(std::size_t index) const {
    Ref value = spec_.statics[index].value();
    if (value) return value;
    raise_error(PyExc_ReferenceError, "partax: a static value of a result was dropped during the call");
  }
  PyObject* own(std::size_t index) const { return source_ == nullptr ? nullptr : source_->own_static(index); }

  const TreeSpec& spec_;
  const LeafSource* source_;  // null where it has none
};

// As their registered functions make them: an empty one, in which the children are set before the rest.
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
    for (std::size_t i = 0; i < layout.statics.size(); ++i) {
      set(layout.statics[i], object, statics_.at(node.first_static + i));
    }
    for (std::size_t i = 0; i < layout.made.size(); ++i) set(layout.made[i], object, made(layout.makers[i].get()));
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

 private:
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
