#include "tree/match.h"

#include <cstring>
#include <memory>

#include "base/instance_fields.h"
#include "base/stack_room.h"
#include "tree/equinox.h"
#include "tree/flatten.h"

namespace partax {
namespace {

// Fields of one instance that are read onto the stack; longer ones go to the heap.
constexpr std::size_t kStackFields = 24;

// Walks an object beside the spec's nodes. Every object passed to `walk` is owned by somebody for that time, whatever
// user code does to its parent meanwhile.
class Matcher {
 public:
  Matcher(const TreeSpec& spec, LeafBuffer& leaves, bool abstract, const TraceRule* rule)
      : nodes_(spec.nodes.data()),
        statics_(spec.statics.data()),
        identity_(spec.identity.data()),
        leaves_(leaves),
        array_type_(reinterpret_cast<PyTypeObject*>(hooks().jax_array_type.get())),
        abstract_(abstract),
        rule_(rule) {}

  bool call(PyObject* const* values, std::size_t count) {
    if (nodes_[0].arity != count) return false;
    ++at_;
    return sequence(FixedItems{const_cast<PyObject**>(values)}, count);
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
      default:
        break;
    }
    // Without room for its recursion no tree matches; the walk that follows raises.
    if (Py_TYPE(object) != node.info->type || !stack_.is_free()) return false;
    switch (node.kind) {
      case Kind::kTuple:
      case Kind::kNamedTuple: {
        if (PyTuple_GET_SIZE(object) != static_cast<Py_ssize_t>(node.arity)) return false;
        return sequence(FixedItems{reinterpret_cast<PyTupleObject*>(object)->ob_item}, node.arity);
      }
      case Kind::kList:
        return list(node, object);
      case Kind::kModule:
      case Kind::kDataclass:
        return fields(node, object);
      case Kind::kStatic:
        return static_value(node.first_static, object);
      case Kind::kDict:
      case Kind::kDefaultDict:
      case Kind::kOrderedDict:
        return dict(node, object);
      default:
        return registered(node, object);
    }
  }

 private:
  bool dynamic_leaf(const Node& node, PyObject* object) {
    if (Py_TYPE(object) != array_type_ && !is_dynamic(object, abstract_) && !is_number(node, object)) return false;
    leaves_.push(object);
    return true;
  }

  // Whether `trace` takes a leaf that is no array here.
  bool is_number(const Node& node, PyObject* object) const {
    return node.may_be_number && rule_ != nullptr && TypeTable::instance().find(object).kind == Kind::kStaticLeaf &&
           rule_->holds(object);
  }

  // Under `abstract`, a ShapeDtypeStruct is dynamic, so it never equals a static leaf.
  bool becomes_dynamic(PyObject* object) const { return abstract_ && is_dynamic(object, true); }

  bool static_value(std::size_t index, PyObject* object) {
    if (object == identity_[index]) return true;
    if (!statics_[index].equals(object)) return false;
    if (!statics_[index].is_object(object)) leaves_.add_own_static(index, object);
    return true;
  }

  bool child(PyObject* object) {
    const Kind kind = nodes_[at_].kind;
    if (kind == Kind::kDynamicLeaf && Py_TYPE(object) == array_type_) {
      ++at_;
      leaves_.push(object);
      return true;
    }
    const Ref owned = Ref::borrow(object);
    return walk(object);
  }

  // Walks the children that `source` gives. A run of static leaves is one comparison of pointers where it is unchanged.
  template <typename Source>
  bool sequence(const Source& source, std::size_t arity) {
    std::size_t i = 0;
    while (i < arity) {
      const Node& next = nodes_[at_];
      if (next.kind != Kind::kStaticRun) {
        PyObject* object = source.at(i++);
        if (object == nullptr || !child(object)) return false;
        continue;
      }
      ++at_;
      const std::size_t count = next.arity;
      PyObject** block = source.block(i, count);
      if (block == nullptr) return false;
      if (abstract_ || std::memcmp(block, identity_ + next.first_static, count * sizeof(PyObject*)) != 0) {
        for (std::size_t j = 0; j < count; ++j) {
          PyObject* object = source.at(i + j);
          if (object == nullptr) return false;
          const Ref owned = Ref::borrow(object);
          if (!static_value(next.first_static + j, object) || becomes_dynamic(object)) return false;
        }
      }
      i += count;
    }
    return true;
  }

  // Children in a row that nothing moves.
  struct FixedItems {
    PyObject** items;
    PyObject* at(std::size_t i) const { return items[i]; }
    PyObject** block(std::size_t i, std::size_t) const { return items + i; }
  };

  // Children of a list, which user code may shrink meanwhile.
  struct ListItems {
    PyObject* list;
    PyObject* at(std::size_t i) const {
      return static_cast<Py_ssize_t>(i) < PyList_GET_SIZE(list) ? PyList_GET_ITEM(list, i) : nullptr;
    }
    PyObject** block(std::size_t i, std::size_t count) const {
      return static_cast<Py_ssize_t>(i + count) <= PyList_GET_SIZE(list)
                 ? reinterpret_cast<PyListObject*>(list)->ob_item + i
                 : nullptr;
    }
  };

  bool list(const Node& node, PyObject* object) {
    const auto arity = static_cast<Py_ssize_t>(node.arity);
    return PyList_GET_SIZE(object) == arity && sequence(ListItems{object}, node.arity) &&
           PyList_GET_SIZE(object) == arity;
  }

  bool dict(const Node& node, PyObject* object) {
    if (PyDict_GET_SIZE(object) != static_cast<Py_ssize_t>(node.arity)) return false;
    if (node.kind == Kind::kDefaultDict) {
      const Ref factory = attribute(object, "default_factory");
      if (!static_value(node.first_static, factory.get())) return false;
    }
    const std::size_t keys = first_key(node);
    if (!same_keys(keys, node, object)) return false;
    for (std::size_t i = 0; i < node.arity; ++i) {
      const Ref key = statics_[keys + i].value();
      if (!key) return false;
      PyObject* value = PyDict_GetItemWithError(object, key.get());
      if (value == nullptr) {
        if (PyErr_Occurred() != nullptr) throw PythonError{};
        return false;
      }
      if (!child(value)) return false;
    }
    return PyDict_GET_SIZE(object) == static_cast<Py_ssize_t>(node.arity);
  }

  // The dictionary's keys are the spec's, by the exact rules (a look-up takes 1 for True).
  bool same_keys(std::size_t keys, const Node& node, PyObject* object) {
    PyObject *key, *value;
    Py_ssize_t position = 0;
    std::size_t i = 0;
    while (i < node.arity && PyDict_Next(object, &position, &key, &value)) {
      if (key != identity_[keys + i]) break;
      ++i;
    }
    if (i == node.arity) return true;
    const Ref ordered = keys_in_order(object, node.kind);
    if (PyList_GET_SIZE(ordered.get()) != static_cast<Py_ssize_t>(node.arity)) return false;
    for (std::size_t j = 0; j < node.arity; ++j) {
      if (!static_value(keys + j, PyList_GET_ITEM(ordered.get(), j))) return false;
    }
    return true;
  }

  bool fields(const Node& node, PyObject* object) {
    const TypeInfo& info = *node.info;
    const std::size_t children = info.child_names.size(), statics = info.static_names.size();
    const FieldReader reader(object);
    PyObject* stack[kStackFields];
    std::unique_ptr<PyObject*[]> heap;
    PyObject** values = stack;
    if (children + statics > kStackFields) {
      heap.reset(new PyObject*[children + statics]);
      values = heap.get();
    }
    const bool plain = PyDict_GET_SIZE(reader.dict()) == static_cast<Py_ssize_t>(children + statics);
    if (node.kind == Kind::kModule && plain == node.has_wrapper_fields) return false;
    reader.read(info, values);

    // First all that runs no user code; then the rest, on references of our own.
    bool all_identical = true;
    for (std::size_t i = 0; i < statics; ++i) {
      all_identical =
          all_identical && values[children + i] != nullptr && values[children + i] == identity_[node.first_static + i];
    }
    bool only_leaves = true;
    for (std::size_t i = 0, at = at_; i < children; ++i, ++at) {
      only_leaves = only_leaves && nodes_[at].kind == Kind::kDynamicLeaf && values[i] != nullptr &&
                    Py_TYPE(values[i]) == array_type_;
      if (!only_leaves) break;
    }
    if (all_identical && only_leaves && !node.has_wrapper_fields) {
      for (std::size_t i = 0; i < children; ++i) leaves_.push(values[i]);
      at_ += children;
      return true;
    }
    return owned_fields(node, reader, values, children, statics);
  }

  bool owned_fields(const Node& node, const FieldReader& reader, PyObject** values, std::size_t children,
                    std::size_t statics) {
    // Drops the references at the end, whatever happens in between.
    struct Owned {
      Owned(PyObject** begin, std::size_t size) : values(begin), count(size) {
        for (std::size_t i = 0; i < count; ++i) Py_XINCREF(values[i]);
      }
      ~Owned() {
        for (std::size_t i = 0; i < count; ++i) Py_XDECREF(values[i]);
      }
      Owned(const Owned&) = delete;
      Owned& operator=(const Owned&) = delete;
      PyObject** values;
      std::size_t count;
    } const owned(values, children + statics);

    for (std::size_t i = 0; i < statics; ++i) {
      if (!optional_static(node.first_static + i, values[children + i])) return false;
    }
    if (node.has_wrapper_fields) {
      PyObject* names = equinox().wrapper_names.get();
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); ++i) {
        const Ref value = Ref::borrow(PyDict_GetItemWithError(reader.dict(), PyTuple_GET_ITEM(names, i)));
        if (!value && PyErr_Occurred() != nullptr) throw PythonError{};
        if (!optional_static(node.first_static + statics + static_cast<std::size_t>(i), value.get())) return false;
      }
    }
    for (std::size_t i = 0; i < children; ++i) {
      PyObject* value = values[i] != nullptr ? values[i] : equinox().missing.get();
      if (value == nullptr || !child(value)) return false;
    }
    return true;
  }

  bool optional_static(std::size_t index, PyObject* object) {
    if (object == nullptr || object == equinox().missing.get()) return statics_[index].absent();
    return static_value(index, object);
  }

  bool registered(const Node& node, PyObject* object) {
    const OneLevel level = flatten_registered(object);
    if (PySequence_Fast_GET_SIZE(level.children.get()) != static_cast<Py_ssize_t>(node.arity)) return false;
    if (!static_value(node.first_static, level.aux.get())) return false;
    if (PyList_Check(level.children.get())) return sequence(ListItems{level.children.get()}, node.arity);
    return sequence(FixedItems{reinterpret_cast<PyTupleObject*>(level.children.get())->ob_item}, node.arity);
  }

  const Node* nodes_;
  const StaticValue* statics_;
  PyObject* const* identity_;
  LeafBuffer& leaves_;
  PyTypeObject* array_type_;
  bool abstract_;
  const TraceRule* rule_;
  const StackReserve stack_ = stack_reserve();
  std::size_t at_ = 0;
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
  return same;
}

}  // namespace

bool match_call(const TreeSpec& spec, PyObject* const* values, std::size_t count, LeafBuffer& leaves, bool abstract,
                const TraceRule* rule) {
  leaves.reserve(spec.num_dynamic);
  return matched(leaves, [&] { return Matcher(spec, leaves, abstract, rule).call(values, count); });
}

bool match_tree(const TreeSpec& spec, PyObject* tree, LeafBuffer& leaves) {
  leaves.reserve(spec.num_dynamic);
  return matched(leaves, [&] { return Matcher(spec, leaves, false, nullptr).walk(tree); });
}

}  // namespace partax
