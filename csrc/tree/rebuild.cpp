#include "tree/rebuild.h"

#include <algorithm>
#include <cstring>

#include "base/error_path.h"
#include "base/stack_room.h"
#include "tree/equinox.h"
#include "tree/held_values.h"
#include "tree/plain_classes.h"
#include "tree/registered_functions.h"

namespace partax {
namespace {

// No garbage collection starts in here. A rebuilt model counts for hundreds of allocations, and most often replaces one
// of the same size next, which takes them all back. Only around single allocations, which run nobody's code and keep
// the GIL: so nobody can see the switch meanwhile, nor set it.
class CollectionPause {
 public:
  CollectionPause() noexcept : enabled_(PyGC_Disable() != 0) {}
  CollectionPause(const CollectionPause&) = delete;
  CollectionPause& operator=(const CollectionPause&) = delete;
  ~CollectionPause() {
    if (enabled_) PyGC_Enable();
  }

 private:
  bool enabled_;
};

// A result of `make()`, a new reference.
template <typename Make>
Ref allocated(Make&& make) {
  const CollectionPause pause;
  return Ref::checked(make());
}

class Rebuilder {
 public:
  Rebuilder(const TreeSpec& spec, LeafSource& leaves)
      : spec_(spec),
        leaves_(leaves),
        stored_(!spec.identity.empty() && leaves.all_stored() ? spec.identity.data() : nullptr) {}

  std::vector<Ref> call() {
    const std::uint32_t arity = spec_.nodes[at_++].arity;
    const Ref tuple = filled_tuple(Ref::checked(PyTuple_New(static_cast<Py_ssize_t>(arity))), arity);
    std::vector<Ref> children;
    children.reserve(arity);
    for (std::uint32_t i = 0; i < arity; ++i) children.push_back(Ref::borrow(PyTuple_GET_ITEM(tuple.get(), i)));
    return children;
  }

  Ref build() {
    const std::size_t index = at_++;
    const Node& node = spec_.nodes[index];
    switch (node.kind) {
      case Kind::kDynamicLeaf:
        return leaves_.leaf(next_leaf_++);
      case Kind::kStaticLeaf:
        return static_value(node.first_static);
      case Kind::kNone:
        return Ref::borrow(Py_None);
      default:
        break;
    }
    if (node.comes_back) {
      Ref whole = leaves_.whole(next_leaf_);
      if (whole) {
        at_ = index + node.extent;
        return whole;
      }
    }
    if (!stack_.is_free()) {
      PyErr_SetString(PyExc_RecursionError, "a result is nested more deeply than this thread's stack has room for");
      throw PythonError{};
    }
    switch (node.kind) {
      case Kind::kTuple:
        return tuple(node);
      case Kind::kNamedTuple:
        return named_tuple(node);
      case Kind::kList: {
        Ref list = allocated([&] { return PyList_New(static_cast<Py_ssize_t>(node.arity)); });
        PyObject** items = reinterpret_cast<PyListObject*>(list.get())->ob_item;
        return filled(std::move(list), items, node.arity);
      }
      case Kind::kDict:
      case Kind::kOrderedDict:
      case Kind::kDefaultDict:
        return dict(node);
      case Kind::kModule:
        return module(node);
      case Kind::kDataclass:
        return dataclass(node);
      case Kind::kDeclared:
        return node.info->set_order.empty() ? partial(node) : declared(node);
      case Kind::kRegistered:
        return registered(node);
      case Kind::kEntries:
        return entries(node);
      case Kind::kStatic:
        return static_value(node.first_static);
      default:
        break;
    }
    PyErr_SetString(PyExc_SystemError, "partax: a spec with a misplaced node");
    throw PythonError{};
  }

 private:
  static PyObject* type(const Node& node) { return reinterpret_cast<PyObject*>(node.info->type); }

  bool has_static(std::size_t index) const { return !spec_.statics[index].absent() || leaves_.gives_static(index); }

  Ref static_value(std::size_t index) const {
    if (stored_ != nullptr && stored_[index] != nullptr) return Ref::borrow(stored_[index]);
    Ref value = leaves_.static_value(spec_, index);
    if (!value) {
      PyErr_SetString(PyExc_ReferenceError, "partax: a static value of a result was dropped during the call");
      throw PythonError{};
    }
    return value;
  }

  // Fills the (empty) places of a new sequence, which owns what is there if anything raises. The collector does not
  // know it until it is full, so that nobody finds it there before.
  Ref filled(Ref sequence, PyObject** items, std::size_t arity) {
    if (arity == 0) return sequence;
    PyObject_GC_UnTrack(sequence.get());
    fill(items, arity);
    PyObject_GC_Track(sequence.get());
    return sequence;
  }

  void fill(PyObject** items, std::size_t arity) {
    std::size_t i = 0;
    while (i < arity) {
      const Node& next = spec_.nodes[at_];
      if (next.kind == Kind::kStaticRun) {
        ++at_;
        for (std::size_t j = 0; j < next.arity; ++j) items[i++] = static_value(next.first_static + j).release();
      } else if (next.kind == Kind::kDynamicRun) {
        ++at_;
        leaves_.fill(items + i, next_leaf_, next.arity);
        next_leaf_ += next.arity;
        i += next.arity;
      } else {
        items[i++] = build().release();
      }
    }
  }

  Ref tuple(const Node& node) {
    return filled_tuple(allocated([&] { return PyTuple_New(static_cast<Py_ssize_t>(node.arity)); }), node.arity);
  }

  Ref filled_tuple(Ref tuple, std::size_t arity) {
    PyObject** items = reinterpret_cast<PyTupleObject*>(tuple.get())->ob_item;
    return filled(std::move(tuple), items, arity);
  }

  Ref named_tuple(const Node& node) {
    PyTypeObject* cls = node.info->type;
    if (is_plain_named_tuple(*node.info, node.arity)) {
      const auto size = static_cast<Py_ssize_t>(node.arity);
      return filled_tuple(allocated([&] { return cls->tp_alloc(cls, size); }), node.arity);
    }
    const Ref children = tuple(node);
    return Ref::checked(PyObject_CallObject(type(node), children.get()));
  }

  Ref dict(const Node& node) {
    Ref result;
    if (node.kind == Kind::kDict) {
      result = allocated([] { return PyDict_New(); });
    } else if (node.kind == Kind::kOrderedDict) {
      result = Ref::checked(PyObject_CallNoArgs(type(node)));
    } else {
      result = Ref::checked(PyObject_CallOneArg(type(node), static_value(node.first_static).get()));
    }
    for (std::size_t i = 0; i < node.arity; ++i) {
      const Ref key = static_value(first_key(node) + i);
      const Ref child = build();
      // OrderedDict keeps its order outside the dictionary, so it is set through its own slot.
      checked_int(node.kind == Kind::kOrderedDict ? PyObject_SetItem(result.get(), key.get(), child.get())
                                                  : PyDict_SetItem(result.get(), key.get(), child.get()));
    }
    return result;
  }

  // As Equinox: no __init__, absent fields stay absent, the children set before the static fields.
  Ref module(const Node& node) {
    const TypeInfo& info = *node.info;
    const Ref object = empty_instance(info);
    // Filled in place, so that instances of one class share the keys of their dictionaries.
    const Ref dict = allocated([&] { return PyObject_GenericGetDict(object.get(), nullptr); });
    for (std::size_t i = 0; i < node.arity; ++i) {
      const Ref child = build();
      if (child.get() == equinox().missing.get()) continue;
      checked_int(PyDict_SetItem(dict.get(), info.child_names[i].get(), child.get()));
    }
    const std::size_t statics = info.static_names.size();
    if (node.has_wrapper_fields) {
      PyObject* names = equinox().wrapper_names.get();
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); ++i) {
        const std::size_t index = node.first_static + statics + static_cast<std::size_t>(i);
        const Ref value = has_static(index) ? static_value(index) : Ref::borrow(equinox().missing.get());
        checked_int(PyDict_SetItem(dict.get(), PyTuple_GET_ITEM(names, i), value.get()));
      }
    }
    for (std::size_t i = 0; i < statics; ++i) {
      if (!has_static(node.first_static + i)) continue;
      const Ref value = static_value(node.first_static + i);
      if (value.get() == equinox().missing.get()) continue;
      checked_int(PyDict_SetItem(dict.get(), info.static_names[i].get(), value.get()));
    }
    return object;
  }

  // As jax: the class is called with its fields as keywords, if that does more than to set them.
  Ref dataclass(const Node& node) {
    const TypeInfo& info = *node.info;
    HeldValues values(node.arity + info.static_names.size());
    build_fields(node, values);
    const std::vector<std::uint32_t>& order = order_of_call(info);
    if (!order.empty()) return with_fields(info, values, order);
    const Ref keywords = Ref::checked(PyDict_New());
    for (std::uint32_t i = 0; i < info.child_names.size() + info.static_names.size(); ++i) {
      checked_int(PyDict_SetItem(keywords.get(), field_name(info, i), values[i]));
    }
    return Ref::checked(PyObject_Call(type(node), empty_.get(), keywords.get()));
  }

  // As the registered functions of such a class: an empty instance, in which the children are set before the rest.
  Ref entries(const Node& node) {
    const Layout& layout = *node.info->layout;
    const EntryPlaces at(node);
    HeldValues children(layout.items.empty() ? node.arity : layout.items.size());
    if (layout.items.empty()) {
      fill(children.to_own(), node.arity);
    } else {
      children.keep(tuple(node));
    }
    const Ref object = allocated([&] { return PyBaseObject_Type.tp_new(node.info->type, empty_.get(), nullptr); });
    std::size_t next = 0;
    for (const Slot& slot : layout.items) set(slot, object, children.take(next++));
    for (const Slot& slot : layout.children) set(slot, object, children.take(next++));
    for (std::size_t i = node.first_static; i < at.statics; ++i) {
      set(layout.statics[i - node.first_static], object, static_value(i));
    }
    for (std::size_t i = 0; i < layout.made.size(); ++i) set(layout.made[i], object, made(layout.makers[i].get()));
    if (layout.dictionary == Layout::Dictionary::kNone) return object;
    if (layout.dictionary == Layout::Dictionary::kInSlot && at.children == 0) {
      set(layout.dictionary_slot[0], object, static_entries(at, node.entries));
      return object;
    }
    const Ref dict = allocated([&] { return layout.new_entries(object.get()).release(); });
    for (std::size_t i = 0; i < node.entries; ++i) {
      const Ref value = i < at.children ? children.take(next++) : static_value(at.statics + i - at.children);
      checked_int(PyDict_SetItem(dict.get(), static_value(at.keys + i).get(), value.get()));
    }
    return object;
  }

  // A dictionary with nothing but static values: a copy of the last one, where it has the same.
  Ref static_entries(const EntryPlaces& at, std::size_t count) {
    PyObject* const* const known =
        stored_ == nullptr ? nullptr : stored_ + at.statics;  // the values, and then the keys
    if (known != nullptr && last_entries_ && count == last_count_ &&
        std::memcmp(known, last_statics_, 2 * count * sizeof(PyObject*)) == 0) {
      return allocated([&] { return PyDict_Copy(last_entries_.get()); });
    }
    Ref dict = allocated([] { return PyDict_New(); });
    for (std::size_t i = 0; i < count; ++i) {
      checked_int(PyDict_SetItem(dict.get(), static_value(at.keys + i).get(), static_value(at.statics + i).get()));
    }
    if (known == nullptr || std::find(known, known + 2 * count, nullptr) != known + 2 * count) return dict;
    last_entries_ = allocated([&] { return PyDict_Copy(dict.get()); });
    last_statics_ = known;
    last_count_ = count;
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

  Ref declared(const Node& node) {
    HeldValues values(node.arity + node.info->static_names.size());
    build_fields(node, values);
    Ref object = with_fields(*node.info, values, node.info->set_order);
    if (is_still_declared(*node.info)) return object;
    // The class has been changed: what its functions make of such an instance.
    const OneLevel level = with_path("the result", [&] { return flatten_registered(object.get(), *node.info); });
    return unflattened(node, level.aux.get(), Ref::checked(PySequence_Tuple(level.children.get())).get());
  }

  // A jax.tree_util.Partial, as its function makes one, but for the class's __new__: all that this does more than that
  // of functools.partial is to wrap a function that is a partial itself, and the one here is wrapped already.
  Ref partial(const Node& node) {
    HeldValues values(3);
    build_fields(node, values);
    PyObject *args = values[0], *keywords = values[1], *function = values[2];
    PyTypeObject* base = node.info->type->tp_base;
    if (!PyTuple_CheckExact(args) || !PyDict_CheckExact(keywords) || PyObject_TypeCheck(function, base)) {
      const Ref children = Ref::checked(PyTuple_Pack(2, args, keywords));
      return unflattened(node, function, children.get());
    }
    const Ref given = allocated([&] { return PyTuple_New(PyTuple_GET_SIZE(args) + 1); });
    PyTuple_SET_ITEM(given.get(), 0, Py_NewRef(function));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) {
      PyTuple_SET_ITEM(given.get(), i + 1, Py_NewRef(PyTuple_GET_ITEM(args, i)));
    }
    return allocated([&] { return base->tp_new(node.info->type, given.get(), keywords); });
  }

  void build_fields(const Node& node, HeldValues& values) {
    for (std::size_t i = 0; i < node.arity; ++i) values.keep(build());
    for (std::size_t i = 0; i < node.info->static_names.size(); ++i) {
      values.keep(static_value(node.first_static + i));
    }
  }

  static PyObject* field_name(const TypeInfo& info, std::uint32_t i) {
    const std::size_t children = info.child_names.size();
    return i < children ? info.child_names[i].get() : info.static_names[i - children].get();
  }

  // An instance of which nothing but these fields is set, in this order; runs nobody's code.
  Ref with_fields(const TypeInfo& info, const HeldValues& values, const std::vector<std::uint32_t>& order) const {
    const Ref object = empty_instance(info);
    if (!info.offsets.empty()) {
      for (const std::uint32_t i : order) {
        *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object.get()) + info.offsets[i]) = Py_NewRef(values[i]);
      }
      return object;
    }
    const Ref dict = allocated([&] { return PyObject_GenericGetDict(object.get(), nullptr); });
    for (const std::uint32_t i : order) checked_int(PyDict_SetItem(dict.get(), field_name(info, i), values[i]));
    return object;
  }

  Ref empty_instance(const TypeInfo& info) const {
    const auto make = [&] { return PyBaseObject_Type.tp_new(info.type, empty_.get(), nullptr); };
    // An abstract class raises, and runs Python to say why.
    const bool is_abstract = (info.type->tp_flags & Py_TPFLAGS_IS_ABSTRACT) != 0;
    return is_abstract ? Ref::checked(make()) : allocated(make);
  }

  Ref registered(const Node& node) {
    const Ref aux = static_value(node.first_static);
    const Ref children = tuple(node);
    return unflattened(node, aux.get(), children.get());
  }

  static Ref unflattened(const Node& node, PyObject* aux, PyObject* children) {
    PyObject* function = node.info->unflatten_function.get();
    if (function == nullptr) {
      return call_python("partax._compat.jax_private", "unflatten_node", type(node), aux, children);
    }
    PyObject* const given[] = {aux, children};
    return Ref::checked(PyObject_Vectorcall(function, given, 2, nullptr));
  }

  const TreeSpec& spec_;
  LeafSource& leaves_;
  PyObject* const* const stored_;  // per static value, the object that it is in every result, or null; or null
  const StackReserve stack_ = stack_reserve();
  const Ref empty_ = Ref::checked(PyTuple_New(0));
  std::vector<std::pair<PyObject*, Ref>> made_;
  Ref last_entries_;  // which nobody else has
  PyObject* const* last_statics_ = nullptr;
  std::size_t last_count_ = 0;
  std::size_t at_ = 0;
  std::size_t next_leaf_ = 0;
};

}  // namespace

Ref rebuild(const TreeSpec& spec, LeafSource& leaves) { return Rebuilder(spec, leaves).build(); }

std::vector<Ref> rebuild_call(const TreeSpec& spec, LeafSource& leaves) { return Rebuilder(spec, leaves).call(); }

}  // namespace partax
