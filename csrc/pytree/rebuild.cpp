#include "pytree/rebuild.h"

#include <algorithm>

#include "base/error_path.h"
#include "base/held_values.h"
#include "base/python_hooks.h"
#include "base/stack_room.h"
#include "types/instance_fields.h"

namespace partax {
namespace {

// A result of `make()`, a new reference, without a garbage collection. A rebuilt model counts for hundreds of
// allocations, and most often replaces one of the same size next, which takes them all back.
template <typename Make>
Ref allocated(Make&& make) {
  const CollectionPause pause;
  return Ref::checked(make());
}

// Sets an attribute of a new instance as `object.__setattr__` does, which keeps it out of a dictionary where it can.
void set_attribute(const Ref& object, PyObject* name, PyObject* value) {
  checked_int(PyObject_GenericSetAttr(object.get(), name, value));
}

class Rebuilder {
 public:
  Rebuilder(const TreeSpec& spec, PyObject* const* leaves, const InputReuse* reuse)
      : spec_(spec),
        leaves_(leaves),
        reuse_(reuse),
        has_own_statics_(reuse != nullptr && reuse->call.has_own_statics() && !reuse->statics.empty()) {}

  Ref build() {
    const std::size_t index = at_++;
    const Node& node = spec_.nodes[index];
    if (node.kind == Kind::kDynamicLeaf) return leaf();  // as most are
    if (node.is_passthrough) {
      if (PyObject* const whole = passthrough()) {
        at_ = index + node.extent;
        return Ref::borrow(whole);
      }
    }
    if (!stack_.is_free())
      raise_error(PyExc_RecursionError, "a result is nested more deeply than this thread's stack has room for");
    switch (node.kind) {
      case Kind::kStaticLeaf:
      case Kind::kStatic:
        return static_value(node.first_static);
      case Kind::kNone:
        return Ref::borrow(Py_None);
      case Kind::kTuple:
      case Kind::kCall:
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
      default:
        break;
    }
    raise_error(PyExc_SystemError, "partax: a spec with a misplaced node");
  }

 private:
  static PyObject* type(const Node& node) { return reinterpret_cast<PyObject*>(node.info->type); }

  // ---- Static values.

  PyObject* own_static(std::size_t index) const {
    const std::int32_t source = has_own_statics_ ? reuse_->statics[index] : -1;
    return source < 0 ? nullptr : reuse_->call.own_static(static_cast<std::size_t>(source));
  }

  bool has_static(std::size_t index) const { return own_static(index) != nullptr || !spec_.statics[index].absent(); }

  Ref static_value(std::size_t index) const {
    PyObject* own = own_static(index);
    if (own == nullptr && !spec_.identity.empty()) own = spec_.identity[index];
    Ref value = own != nullptr ? Ref::borrow(own) : spec_.statics[index].value();
    if (value) return value;
    raise_error(PyExc_ReferenceError, "partax: a static value of a result was dropped during the call");
  }

  // ---- Parts of the arguments.

  Ref leaf() { return Ref::borrow(leaves_[next_leaf_++]); }

  // The argument's node that the next node is, or null where the call has not kept it.
  PyObject* passthrough() {
    const PassthroughNode& source = reuse_->nodes[next_given_++];
    PyObject* const node = reuse_->call.node(source.node, node_hint_);
    // Where an array is put on a device it is another one.
    const bool is_same = node != nullptr && std::equal(leaves_ + next_leaf_, leaves_ + next_leaf_ + source.leaf_count,
                                                       reuse_->call.arguments() + source.first_leaf);
    if (!is_same) return nullptr;
    next_leaf_ += source.leaf_count;
    return node;
  }

  // ---- Children in a row.

  // Fills the (empty) places of a new sequence, which owns what is there if anything raises. The collector does not
  // know it until it is full, so that no other code finds it before.
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
      } else if (next.kind == Kind::kDynamicLeaf) {
        ++at_;
        items[i++] = leaf().release();
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
    if (node.arity != 0 && node.info->set_order.size() == node.arity) {
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
      const Ref key = static_value(first_key_index(node) + i);
      const Ref child = build();
      // OrderedDict keeps its order outside the dictionary, so it is set through its own slot.
      checked_int(node.kind == Kind::kOrderedDict ? PyObject_SetItem(result.get(), key.get(), child.get())
                                                  : PyDict_SetItem(result.get(), key.get(), child.get()));
    }
    return result;
  }

  // ---- Instances, which are made without running code of their class.

  Ref empty_instance(const TypeInfo& info) const {
    const auto make_now = [&] { return PyBaseObject_Type.tp_new(info.type, no_arguments_.get(), nullptr); };
    // An abstract class raises, and runs Python to say why.
    const bool is_abstract = (info.type->tp_flags & Py_TPFLAGS_IS_ABSTRACT) != 0;
    return is_abstract ? Ref::checked(make_now()) : allocated(make_now);
  }

  // As Equinox: no __init__, absent fields stay absent, the children set before the static fields.
  Ref module(const Node& node) {
    const TypeInfo& info = *node.info;
    const Ref object = empty_instance(info);
    const auto set = [&](PyObject* name, const Ref& value) { set_attribute(object, name, value.get()); };
    for (std::size_t i = 0; i < node.arity; ++i) {
      const Ref child = build();
      if (child.get() != hooks.missing.get()) set(info.child_names[i].get(), child);
    }
    const std::size_t statics = info.static_names.size();
    if (node.has_wrapper_fields) {
      std::size_t index = node.first_static + statics;
      for (PyObject* name : Items(hooks.wrapper_names.get())) {
        set(name, has_static(index) ? static_value(index) : Ref::borrow(hooks.missing.get()));
        ++index;
      }
    }
    for (std::size_t i = 0; i < statics; ++i) {
      if (!has_static(node.first_static + i)) continue;
      const Ref value = static_value(node.first_static + i);
      if (value.get() != hooks.missing.get()) set(info.static_names[i].get(), value);
    }
    return object;
  }

  // As jax: the class is called with its fields as keywords, if that does more than to set them.
  Ref dataclass(const Node& node) {
    const TypeInfo& info = *node.info;
    HeldValues values(node.arity + info.static_names.size());
    build_fields(node, values);
    if (!info.set_order.empty()) return with_fields(info, values);
    const Ref keywords = Ref::checked(PyDict_New());
    for (std::uint32_t i = 0; i < info.child_names.size() + info.static_names.size(); ++i) {
      checked_int(PyDict_SetItem(keywords.get(), field_name(info, i), values[i]));
    }
    return Ref::checked(PyObject_Call(type(node), no_arguments_.get(), keywords.get()));
  }

  // As its registered functions make it: an empty one, in which the children are set before the rest.
  Ref entries(const Node& node) {
    const Layout& layout = *node.info->layout;
    const EntryPlaces at(node);
    const Ref object = empty_instance(*node.info);
    std::size_t in_run = 0;
    for (const Slot& slot : layout.items) set_slot(slot, object, tuple(node));
    for (const Slot& slot : layout.children) set_slot(slot, object, next_child(in_run));
    for (std::size_t i = 0; i < layout.statics.size(); ++i) {
      set_slot(layout.statics[i], object, static_value(node.first_static + i));
    }
    for (std::size_t i = 0; i < layout.made.size(); ++i) set_slot(layout.made[i], object, made(layout.makers[i].get()));
    if (layout.dictionary == Layout::Dictionary::kNone) return object;
    const auto value = [&](std::size_t i) {  // those of children first
      return i < at.children ? next_child(in_run) : static_value(at.statics + i - at.children);
    };
    if (layout.dictionary == Layout::Dictionary::kOwn) {
      for (std::size_t i = 0; i < node.entries; ++i) {
        const Ref key = static_value(at.keys + i);
        set_attribute(object, key.get(), value(i).get());
      }
      return object;
    }
    const Ref dict = at.children == 0 ? static_dict(node) : dict_of(node, value);
    if (layout.dictionary == Layout::Dictionary::kInAttribute) {
      set_attribute(object, layout.dictionary_name.get(), dict.get());
    } else {
      set_slot(layout.dictionary_slot[0], object, dict);
    }
    return object;
  }

  template <class Value>
  Ref dict_of(const Node& node, const Value& value) {
    const EntryPlaces at(node);
    Ref dict = allocated([] { return PyDict_New(); });
    for (std::size_t i = 0; i < node.entries; ++i) {
      const Ref key = static_value(at.keys + i);
      checked_int(PyDict_SetItem(dict.get(), key.get(), value(i).get()));
    }
    return dict;
  }

  // A dictionary of static values alone, which a Variable has. Where the one before has the same, it is copied, from
  // one that no other code sees: in a third of the time.
  Ref static_dict(const Node& node) {
    const EntryPlaces at(node);
    const std::size_t last = std::exchange(last_statics_, at.statics);
    bool is_same = std::exchange(last_entries_, node.entries) == node.entries && !has_own_statics_;
    is_same = is_same && !spec_.identity.empty();
    for (std::size_t i = 0; is_same && i < std::size_t{2} * node.entries; ++i) {  // values, then keys
      const PyObject* value = spec_.identity[at.statics + i];
      is_same = value != nullptr && value == spec_.identity[last + i];
    }
    if (!is_same) copied_dict_ = Ref();
    if (copied_dict_) return allocated([&] { return PyDict_Copy(copied_dict_.get()); });
    Ref dict = dict_of(node, [&](std::size_t i) { return static_value(at.statics + i); });
    if (is_same) copied_dict_ = allocated([&] { return PyDict_Copy(dict.get()); });
    return dict;
  }

  // The object is not visible to other code yet, and its slot is empty.
  static void set_slot(const Slot& slot, const Ref& object, Ref value) { slot.place(object.get()) = value.release(); }

  // What a maker gives, which all of one result share.
  Ref made(PyObject* maker) {
    for (const auto& [earlier, value] : made_) {
      if (earlier == maker) return value;
    }
    made_.emplace_back(maker, Ref::checked(PyObject_CallNoArgs(maker)));
    return made_.back().second;
  }

  // A child that may be one of a run of static leaves; `in_run` of them have been read.
  Ref next_child(std::size_t& in_run) {
    const Node& next = spec_.nodes[at_];
    if (next.kind != Kind::kStaticRun) return build();
    Ref value = static_value(next.first_static + in_run);
    if (++in_run == next.arity) {
      in_run = 0;
      ++at_;
    }
    return value;
  }

  Ref declared(const Node& node) {
    HeldValues values(node.arity + node.info->static_names.size());
    build_fields(node, values);
    return with_fields(*node.info, values);
  }

  // A jax.tree_util.Partial. Its `__new__`, in Python, does more than that of functools.partial for partials alone.
  Ref partial(const Node& node) {
    HeldValues values(3);
    build_fields(node, values);
    PyTypeObject* const base = node.info->type->tp_base;
    PyObject* const function = values[2];
    if (PyTuple_CheckExact(values[0]) && PyDict_CheckExact(values[1]) && !PyObject_TypeCheck(function, base)) {
      const Ref arguments = Ref::checked(PySequence_Concat(tuple_of(&function, 1).get(), values[0]));
      return Ref::checked(base->tp_new(node.info->type, arguments.get(), values[1]));
    }
    PyObject* const children[] = {values[0], values[1]};
    return unflattened(node, values[2], tuple_of(children, 2).get());
  }

  void build_fields(const Node& node, HeldValues& values) {
    for (std::size_t i = 0; i < node.arity; ++i) values.append(build());
    for (std::size_t i = 0; i < node.info->static_names.size(); ++i) {
      values.append(static_value(node.first_static + i));
    }
  }

  static PyObject* field_name(const TypeInfo& info, std::uint32_t i) {
    const std::size_t children = info.child_names.size();
    return i < children ? info.child_names[i].get() : info.static_names[i - children].get();
  }

  // A new instance with only these fields set; runs no user code.
  Ref with_fields(const TypeInfo& info, const HeldValues& values) const {
    const Ref object = empty_instance(info);
    if (!info.offsets.empty()) {
      for (const std::uint32_t i : info.set_order) {
        *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object.get()) + info.offsets[i]) = Py_NewRef(values[i]);
      }
      return object;
    }
    for (const std::uint32_t i : info.set_order) set_attribute(object, field_name(info, i), values[i]);
    return object;
  }

  Ref registered(const Node& node) {
    const Ref aux = static_value(node.first_static);
    const Ref children = tuple(node);
    return unflattened(node, aux.get(), children.get());
  }

  static Ref unflattened(const Node& node, PyObject* aux, PyObject* children) {
    PyObject* const arguments[] = {aux, children};
    return Ref::checked(PyObject_Vectorcall(node.info->functions.unflatten.get(), arguments, 2, nullptr));
  }

  const TreeSpec& spec_;
  PyObject* const* leaves_;
  const InputReuse* reuse_;
  const bool has_own_statics_;
  const Ref no_arguments_ = Ref::checked(PyTuple_New(0));
  std::vector<std::pair<PyObject*, Ref>> made_;
  std::size_t last_statics_ = 0, last_entries_ = 0;  // of the last `static_dict`
  Ref copied_dict_;
  const StackReserve stack_ = stack_reserve();
  std::size_t at_ = 0;                          // the node of the spec that is next
  std::size_t next_leaf_ = 0;                   // of `leaves_`
  std::size_t next_given_ = 0, node_hint_ = 0;  // of `reuse_`: of its nodes, and where the call has that one
};

}  // namespace

Ref rebuild(const TreeSpec& spec, PyObject* const* leaves, std::size_t count, const InputReuse* reuse) {
  if (count < spec.num_dynamic) raise_error(PyExc_RuntimeError, "partax: a tree got fewer leaves than it has");
  return Rebuilder(spec, leaves, reuse).build();
}

}  // namespace partax
