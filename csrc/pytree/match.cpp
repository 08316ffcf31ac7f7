#include "pytree/match.h"

#include "base/held_values.h"
#include "base/stack_room.h"
#include "pytree/flatten.h"
#include "pytree/unchanged_reader.h"
#include "types/instance_fields.h"

namespace partax {
namespace {

// Walks an object along with the spec's nodes. Every object passed to `walk` is owned for that time, whatever
// user code does to its parent meanwhile.
class Matcher {
 public:
  Matcher(const TreeSpec& spec, LeafBuffer& leaves, bool abstract, const DynamicRule* rule,
          const KeptValues* kept_values = nullptr)
      : nodes_(spec.nodes.data()),
        statics_(spec.statics.data()),
        leaves_(leaves),
        unchanged_(spec, leaves, abstract),
        abstract_(abstract),
        rule_(rule),
        kept_values_(kept_values) {}

  bool call(PyObject* const* values, std::size_t count) {
    if (nodes_[0].arity != count) return false;
    ++at_;
    return kept_values_ == nullptr ? sequence(values, count) : with_kept_values(values, count);
  }

  bool walk(PyObject* object) {
    const Node& node = nodes_[at_++];
    switch (node.kind) {
      case Kind::kDynamicLeaf:
        return dynamic_leaf(node, object);
      case Kind::kStaticLeaf:
        return static_value(node.first_static, object) && !becomes_dynamic(object);
      case Kind::kNone:
        return object == Py_None;
      case Kind::kTuple:
      case Kind::kNamedTuple:
      case Kind::kList:
        return has_type(node, object) && items(node, object);
      case Kind::kModule:
      case Kind::kDataclass:
      case Kind::kDeclared:
        return has_type(node, object) && fields(node, object);
      case Kind::kStatic:
        return has_type(node, object) && static_value(node.first_static, object);
      case Kind::kDict:
      case Kind::kDefaultDict:
      case Kind::kOrderedDict:
        return has_type(node, object) && dict(node, object);
      case Kind::kEntries:
        return has_type(node, object) && entries(node, object);
      default:
        return has_type(node, object) && registered(node, object);
    }
  }

 private:
  // Whether the object is of the node's type. Without room for its recursion no tree matches; the walk that follows
  // raises.
  bool has_type(const Node& node, PyObject* object) const {
    return Py_TYPE(object) == node.info->type && stack_.is_free();
  }

  bool dynamic_leaf(const Node& node, PyObject* object) {
    if (!is_dynamic(object, abstract_) && !is_number(node, object)) return false;
    leaves_.push(Ref::borrow(object));
    return true;
  }

  // Whether `dynamic` selects a leaf that is not an array.
  bool is_number(const Node& node, PyObject* object) const {
    return node.may_be_number && rule_ != nullptr && TypeTable::instance().find(object).kind == Kind::kStaticLeaf &&
           rule_->holds(object);
  }

  // Under `abstract`, a ShapeDtypeStruct is dynamic, so it never equals a static leaf.
  bool becomes_dynamic(PyObject* object) const { return abstract_ && is_dynamic(object, true); }

  bool static_value(std::size_t index, PyObject* object) {
    if (unchanged_.is_same_static(index, object)) return true;
    if (!statics_[index].equals(object)) return false;
    if (!statics_[index].is_object(object)) leaves_.add_own_static(index, object);
    return true;
  }

  // Takes what is unchanged in one pass. A node in which that ends is walked from there on.
  bool child(PyObject* object) {
    if (at_ >= taken_ && at_ != stopped_) {
      taken_ = at_;
      if (unchanged_.match(object, taken_)) {
        at_ = taken_;
        return true;
      }
      stopped_ = taken_;
    }
    const Node& node = nodes_[at_];
    if (at_ + node.extent <= taken_) {
      at_ += node.extent;
      return true;
    }
    if (at_ == taken_ && node.is_passthrough) leaves_.keep_node(at_, object);
    return walk(object);
  }

  // Walks children in a row that nothing moves, and that are held. A run of static leaves is one comparison of pointers
  // where it is unchanged.
  bool sequence(PyObject* const* children, std::size_t arity) {
    std::size_t i = 0;
    while (i < arity) {
      const Node& next = nodes_[at_];
      if (next.kind != Kind::kStaticRun) {
        if (!child(children[i++])) return false;
        continue;
      }
      ++at_;
      const bool is_same = !abstract_ && unchanged_.are_identical(children + i, next);
      for (std::size_t j = 0; !is_same && j < next.arity; ++j) {
        if (!static_value(next.first_static + j, children[i + j]) || becomes_dynamic(children[i + j])) return false;
      }
      i += next.arity;
    }
    return true;
  }

  // The values of a call, some of them matched earlier.
  bool with_kept_values(PyObject* const* values, std::size_t count) {
    for (std::size_t i = 0; i < count;) {
      const Node& next = nodes_[at_];
      if (next.kind != Kind::kStaticRun && kept_values_->parts[i].is_kept) {
        leaves_.append(kept_values_->leaves, kept_values_->parts[i++]);
        at_ += next.extent;
        continue;
      }
      const std::size_t together = next.kind == Kind::kStaticRun ? next.arity : 1;
      if (!sequence(values + i, together)) return false;
      i += together;
    }
    return true;
  }

  // The children in a list or tuple.
  bool items(const Node& node, PyObject* row) {
    const auto arity = static_cast<Py_ssize_t>(node.arity);
    if (!PyList_Check(row)) {
      return PyTuple_GET_SIZE(row) == arity && sequence(reinterpret_cast<PyTupleObject*>(row)->ob_item, node.arity);
    }
    HeldValues children(node.arity);
    return children.hold_items_of(row) && sequence(children.to_fill(), node.arity) && PyList_GET_SIZE(row) == arity;
  }

  bool dict(const Node& node, PyObject* object) {
    const auto arity = static_cast<Py_ssize_t>(node.arity);
    if (PyDict_GET_SIZE(object) != arity) return false;
    if (node.kind == Kind::kDefaultDict) {
      static Name name("default_factory");
      if (!static_value(node.first_static, attribute(object, name).get())) return false;
    }
    if (node.kind == Kind::kOrderedDict && arity > 1 &&
        !unchanged_.is_in_order(object, first_key_index(node), node.arity)) {
      return dict_by_keys(node, object);
    }
    HeldValues items(node.arity);
    if (!unchanged_.read_dict(node, object, items)) return dict_by_keys(node, object);
    items.hold();
    return sequence(items.to_fill(), node.arity);
  }

  // A dictionary with other keys than identical ones in the order expected. They may run user code, so each value is
  // looked up by itself.
  bool dict_by_keys(const Node& node, PyObject* object) {
    const std::size_t keys = first_key_index(node);
    const Ref ordered = Ref::checked(PyList_AsTuple(keys_in_order(object, node.kind).get()));
    if (PyTuple_GET_SIZE(ordered.get()) != static_cast<Py_ssize_t>(node.arity)) return false;
    for (std::size_t i = 0; i < node.arity; ++i) {
      // By the exact rules: a look-up takes 1 for True.
      if (!static_value(keys + i, PyTuple_GET_ITEM(ordered.get(), i))) return false;
    }
    for (std::size_t i = 0; i < node.arity; ++i) {
      const Ref value = dict_item(object, PyTuple_GET_ITEM(ordered.get(), i));
      if (!value || !child(value.get())) return false;
    }
    const Reading reading(object);
    if (PyDict_GET_SIZE(object) != static_cast<Py_ssize_t>(node.arity)) return false;
    unchanged_.expect_order_of(object, Items(ordered.get()).begin(), keys, node.arity);
    return true;
  }

  bool fields(const Node& node, PyObject* object) {
    const TypeInfo& info = *node.info;
    const std::size_t children = info.child_names.size(), statics = info.static_names.size();
    const FieldReader reader(object, info);
    if (node.kind == Kind::kModule && reader.is_exact(info) == node.has_wrapper_fields) return false;
    HeldValues fields(children + statics);
    if (!reader.read(info, fields) && node.kind == Kind::kDeclared) return false;
    for (std::size_t i = 0; i < statics; ++i) {
      if (!optional_static(node.first_static + i, fields[children + i])) return false;
    }
    if (node.has_wrapper_fields) {
      std::size_t index = node.first_static + statics;
      for (PyObject* name : Items(hooks.wrapper_names.get())) {
        if (!optional_static(index++, dict_item(reader.dict(), name).get())) return false;
      }
    }
    for (std::size_t i = 0; i < children; ++i) {
      PyObject* value = fields[i] != nullptr ? fields[i] : hooks.missing.get();
      if (value == nullptr || !child(value)) return false;
    }
    return true;
  }

  bool entries(const Node& node, PyObject* object) {
    const Ref row = node.info->layout->contiguous_items(object);
    if (!node.info->layout->items.empty() && !row) return false;
    const std::size_t num_statics = EntryPlaces(node).keys - node.first_static;
    // The children, then the static values, in the order of the spec: null where they are identical.
    HeldValues values(node.arity + num_statics);
    PyObject** const children = values.to_own();
    PyObject** const statics = children + node.arity;
    const auto own = [&](std::size_t i, PyObject* value) {
      Ref::steal(std::exchange(children[i], Py_NewRef(value)));
      return true;
    };
    const auto differs = [&](std::size_t index, PyObject* value) {
      return own(node.arity + index - node.first_static, value);
    };
    if (!unchanged_.visit_entries(node, object, true, own, differs, [](std::size_t) {})) return false;
    for (std::size_t i = 0; i < num_statics; ++i) {
      if (statics[i] != nullptr && !static_value(node.first_static + i, statics[i])) return false;
    }
    return row ? items(node, row.get()) : sequence(children, node.arity);
  }

  bool optional_static(std::size_t index, PyObject* object) {
    if (object == nullptr || object == hooks.missing.get()) return statics_[index].absent();
    return static_value(index, object);
  }

  bool registered(const Node& node, PyObject* object) {
    if (is_as_declared(*node.info, object)) return false;  // it has another key, whatever its functions say
    const OneLevel level = flatten_registered(object, *node.info);
    return static_value(node.first_static, level.aux.get()) && items(node, level.children.get());
  }

  const Node* nodes_;
  const StaticValue* statics_;
  LeafBuffer& leaves_;
  UnchangedReader unchanged_;
  bool abstract_;
  const DynamicRule* rule_;
  const KeptValues* kept_values_;
  const StackReserve stack_ = stack_reserve();
  std::size_t at_ = 0;
  std::size_t taken_ = 0;                  // the nodes before this one have been taken
  std::size_t stopped_ = ~std::size_t{0};  // where that has ended
};

// An error is left to `flatten` and the table, which meet it again and know the path; but not one that must pass.
template <typename Body>
bool matched(LeafBuffer& leaves, Body&& body) {
  bool same = false;
  try {
    same = body();
  } catch (const WalkError& error) {
    if (error.must_pass()) {
      error.raise("an argument");
      throw PythonError{};
    }
  } catch (const PythonError&) {
    forgive();
  }
  if (!same) leaves.clear();
  if (leaves.has_own_statics()) leaves.sort_own_statics();
  return same;
}

}  // namespace

bool match_call(const TreeSpec& spec, PyObject* const* values, std::size_t count, LeafBuffer& leaves, bool abstract,
                const DynamicRule* rule, const KeptValues* kept_values) {
  leaves.reserve(leaves.size() + spec.num_dynamic);
  leaves.reserve_nodes(spec.num_passthroughs);
  return matched(leaves, [&] { return Matcher(spec, leaves, abstract, rule, kept_values).call(values, count); });
}

}  // namespace partax
