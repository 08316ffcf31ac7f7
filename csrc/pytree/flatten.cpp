#include "pytree/flatten.h"

#include <algorithm>
#include <limits>

#include "base/error_path.h"
#include "base/held_values.h"
#include "base/python_hooks.h"

namespace partax {
namespace {

[[noreturn]] void changed_while_walking() {
  throw WalkError::diagnosed(
      PyExc_RuntimeError,
      "the container changed size while partax was walking it, expected it to stay as it is for "
      "the length of a call; do not mutate arguments from `__eq__`, `__hash__` or other threads");
}

// Makes room for many more elements at once, but grows by a factor all the same.
template <typename Element>
void make_room(std::vector<Element>& elements, std::size_t more) {
  if (more < 256 || elements.capacity() - elements.size() >= more) return;
  elements.reserve(std::max(elements.size() + more, 2 * elements.capacity()));
}

// For each value of a call, whether an option with these names and positions means it.
std::vector<bool> values_meant(const Ref& names, const Ref& shape) {
  std::vector<bool> flags;
  const Ref meant = python::values_meant(names, shape);
  for (PyObject* is_meant : Items(meant.get())) flags.push_back(is_meant == Py_True);
  return flags;
}

// Equinox stores its marker of an absent field in instances that it rebuilds.
Ref present(Ref value) { return value.get() == hooks.missing.get() ? Ref() : std::move(value); }

}  // namespace

Ref keys_in_order(PyObject* dict, Kind kind) {
  if (kind == Kind::kOrderedDict) return Ref::checked(PySequence_List(dict));
  Ref keys = Ref::checked(PyDict_Keys(dict));
  if (PyList_Sort(keys.get()) < 0) {
    throw WalkError::diagnosed(PyExc_TypeError,
                               "found a dict whose keys cannot be sorted, expected keys of one kind (jax orders dicts "
                               "by key); use keys that compare with `<`, or an OrderedDict");
  }
  return keys;
}

void Flattener::tree(PyObject* root) {
  TypeTable::instance().epoch();  // classes may have been registered since the last walk
  reading([&] { walk(root); });
}

void Flattener::call(PyObject* const* values, std::size_t count) {
  TypeTable::instance().epoch();
  const std::size_t index = begin_node(Kind::kCall, count, nullptr);
  for (std::size_t i = 0; i < count; ++i) {
    traces_more_ = i < options_.rule_values.size() && options_.rule_values[i];
    const bool is_static = i < options_.static_values.size() && options_.static_values[i];
    of_value(i, [&] { reading([&] { is_static ? leaf(values[i], false) : walk(values[i]); }); });
  }
  spec_.nodes[index].extent = static_cast<std::uint32_t>(spec_.nodes.size() - index);
}

std::size_t Flattener::begin_node(Kind kind, std::size_t arity, const TypeInfo* info) {
  if (info != nullptr) remember(*info);
  spec_.hash =
      mix(spec_.hash, (static_cast<std::size_t>(kind) << 56) ^ (arity << 20) ^ reinterpret_cast<std::size_t>(info));
  spec_.nodes.push_back(Node{kind, false, false, false, false, 0, static_cast<std::uint32_t>(arity), 1,
                             static_cast<std::uint32_t>(spec_.statics.size()), info});
  return spec_.nodes.size() - 1;
}

void Flattener::remember(const TypeInfo& info) {
  for (auto earlier = spec_.infos.rbegin(); earlier != spec_.infos.rend(); ++earlier) {
    if (earlier->get() == &info) return;
  }
  spec_.infos.push_back(TypeTable::instance().shared(info));
  spec_.types.push_back(Ref::borrow(reinterpret_cast<PyObject*>(info.type)));
}

void Flattener::add_static(Ref value, Unhashable unhashable) {
  if (options_.hashed)
    spec_.hash = mix(spec_.hash, value ? static_hash(value.get(), unhashable, options_.callables) : 0);
  spec_.statics.push_back(StaticValue::loose(std::move(value)));
}

void Flattener::leaf(PyObject* object, bool dynamic) {
  if (dynamic) {
    const std::size_t index = begin_node(Kind::kDynamicLeaf, 0, nullptr);
    spec_.nodes[index].may_be_number = traces_more_;
    ++spec_.num_dynamic;
    leaves_.push(Ref::borrow(object));
    return;
  }
  add_static(Ref::borrow(object), Unhashable::kRefuse);
  spec_.hash = mix(spec_.hash, static_cast<std::size_t>(Kind::kStaticLeaf));
  spec_.nodes.push_back(Node{Kind::kStaticLeaf, false, false, false, false, 0, 0, 1,
                             static_cast<std::uint32_t>(spec_.statics.size() - 1), nullptr});
}

bool Flattener::is_dynamic_leaf(PyObject* object, LeafSort sort) const {
  if (options_.every_leaf || is_dynamic_sort(sort, options_.abstract)) return true;
  if (!traces_more_) return false;
  if (options_.rule->holds(object)) return true;
  if (!options_.rule->refuses_others()) return false;
  throw WalkError::diagnosed(PyExc_TypeError, "found a `" + type_name(object) +
                                                  "`, expected an array or a number; name the argument in "
                                                  "static_argnames if it is to be static");
}

void Flattener::walk(PyObject* object) {
  if (options_.objects != nullptr) options_.objects->push_back(Ref::borrow(object));
  if (options_.is_leaf && options_.is_leaf(object)) return leaf(object, true);
  const TypeInfo& info = TypeTable::instance().find_in_tree(object);
  if (info.kind == Kind::kStaticLeaf) return leaf(object, is_dynamic_leaf(object, info.sort));
  if (info.kind == Kind::kNone) {
    begin_node(Kind::kNone, 0, nullptr);
    return;
  }
  if (++depth_ > kMaxDepth || !stack_.is_free()) {
    const std::string limit = depth_ > kMaxDepth ? "more than " + std::to_string(kMaxDepth) + " levels deep"
                                                 : "more deeply than this thread's stack has room for";
    throw WalkError::diagnosed(PyExc_RecursionError, "found a tree that is nested " + limit +
                                                         " or contains itself, expected a finite, flatter tree");
  }
  const std::size_t index = spec_.nodes.size();
  node(object, info, index);
  spec_.nodes[index].extent = static_cast<std::uint32_t>(spec_.nodes.size() - index);
  --depth_;
}

// Walks the child that `get` gives, an owned reference; `segment()` is the step to it.
template <typename Segment, typename Get>
void Flattener::child(Segment&& segment, Get&& get) {
  below(segment, [&] {
    const Ref owned = get();
    walk(owned.get());
  });
}

// Walks `count` children; consecutive static leaves become one run.
template <typename Item>
void Flattener::sequence(std::size_t count, Item&& item, PyObject* parent, std::size_t index) {
  const Kind kind = spec_.nodes[index].kind;
  const TypeInfo* info = spec_.nodes[index].info;
  if (!options_.every_leaf) make_room(spec_.statics, count);
  std::size_t previous = 0;  // the node of the child before, if it was such a leaf or a run of them; else 0
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = spec_.nodes.size();
    const auto segment = [&] {
      if (is_named_by_functions(kind)) return child_segment(parent, i);
      return i < info->child_names.size() ? attribute_segment(info->child_names[i].get()) : index_segment(i);
    };
    child(segment, [&] { return item(i); });
    if (spec_.nodes[at].kind != Kind::kStaticLeaf) {
      previous = 0;
    } else if (previous == 0) {
      previous = at;
    } else {
      Node& run = spec_.nodes[previous];
      run.arity = run.kind == Kind::kStaticRun ? run.arity + 1 : 2;
      run.kind = Kind::kStaticRun;
      spec_.nodes.pop_back();
    }
  }
}

void Flattener::node(PyObject* object, const TypeInfo& info, std::size_t index) {
  switch (info.kind) {
    case Kind::kTuple:
    case Kind::kNamedTuple: {
      const auto size = static_cast<std::size_t>(PyTuple_GET_SIZE(object));
      begin_node(info.kind, size, &info);
      sequence(size, [&](std::size_t i) { return Ref::borrow(PyTuple_GET_ITEM(object, i)); }, object, index);
      return;
    }
    case Kind::kList: {
      const auto size = static_cast<std::size_t>(PyList_GET_SIZE(object));
      begin_node(info.kind, size, &info);
      const auto item = [&](std::size_t i) {
        Ref item = item_of(object, static_cast<Py_ssize_t>(i));
        if (!item) changed_while_walking();
        return item;
      };
      sequence(size, item, object, index);
      if (static_cast<std::size_t>(PyList_GET_SIZE(object)) != size) changed_while_walking();
      return;
    }
    case Kind::kDict:
    case Kind::kDefaultDict:
    case Kind::kOrderedDict: {
      const Ref keys = keys_in_order(object, info.kind);
      begin_node(info.kind, static_cast<std::size_t>(PyList_GET_SIZE(keys.get())), &info);
      if (info.kind == Kind::kDefaultDict) {
        add_static(attribute(object, "default_factory"), Unhashable::kRefuse);
      }
      dict_children(object, keys.get());
      return;
    }
    case Kind::kModule:
    case Kind::kDataclass:
    case Kind::kDeclared:
      return fields(object, info, index);
    case Kind::kStatic:
      begin_node(info.kind, 0, &info);
      return add_static(Ref::borrow(object), Unhashable::kRefuse);
    default:
      return registered(object, info, index);
  }
}

void Flattener::dict_children(PyObject* dict, PyObject* keys) {
  const Py_ssize_t size = PyList_GET_SIZE(keys);
  for (Py_ssize_t i = 0; i < size; ++i) add_static(Ref::borrow(PyList_GET_ITEM(keys, i)), Unhashable::kRefuse);
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* key = PyList_GET_ITEM(keys, i);
    child([&] { return key_segment(key); },
          [&] {
            Ref value = reading([&] { return dict_item(dict, key); }, "looking up a key of");
            if (!value) changed_while_walking();
            return value;
          });
  }
  if (PyDict_GET_SIZE(dict) != size) changed_while_walking();
}

void Flattener::fields(PyObject* object, const TypeInfo& info, std::size_t index) {
  const TypeInfoPtr keep = TypeTable::instance().shared(info);
  const std::size_t children = info.child_names.size(), statics = info.static_names.size();
  const FieldReader reader(object, info);
  HeldValues values(children + statics);
  const bool is_as_declared = reader.read(info, values);
  // Another instance than what has been declared is what the registered functions say.
  const bool is_declared = info.kind == Kind::kDeclared;
  if (is_declared && !is_as_declared) return registered(object, info, index);
  if (info.functions.error) throw WalkError::diagnosed(PyExc_TypeError, exact_text(info.functions.error.get()));
  begin_node(info.kind, children, &info);
  if (is_declared) name_children(object);
  const auto add_field = [&](PyObject* name, Ref value) {
    below([&] { return attribute_segment(name); },
          [&] { add_static(present(std::move(value)), Unhashable::kCompare); });
  };
  for (std::size_t i = 0; i < statics; ++i) add_field(info.static_names[i].get(), Ref::borrow(values[children + i]));
  // Equinox keeps the wrapper attributes only where the instance has other than its plain fields.
  if (info.kind == Kind::kModule && PyDict_GET_SIZE(reader.dict()) != static_cast<Py_ssize_t>(children + statics)) {
    spec_.nodes[index].has_wrapper_fields = true;
    for (PyObject* name : Items(hooks.wrapper_names.get())) add_field(name, dict_item(reader.dict(), name));
  }
  for (std::size_t i = 0; i < children; ++i) {
    const auto segment = [&] {
      return is_declared ? child_segment(object, i) : attribute_segment(info.child_names[i].get());
    };
    child(segment, [&] {
      if (values[i] == nullptr && !hooks.missing)
        throw WalkError::diagnosed(PyExc_AttributeError, "the field is not set");
      return Ref::borrow(values[i] != nullptr ? values[i] : hooks.missing.get());
    });
  }
}

void Flattener::name_children(PyObject* object) {
  if (options_.keyed) spec_.child_keys.push_back(python::child_keys(object));
}

// Begins a node whose layout reads what its registered functions return; false for any other node.
bool Flattener::begin_entries(PyObject* object, const TypeInfo& info, const OneLevel& level) {
  if (!info.layout) return false;
  const Ref entries =
      reading([&] { return python::read_entries(object, info.layout->description, level.children, level.aux); });
  if (entries.get() == Py_None) return false;
  const Items keys(PyTuple_GET_ITEM(entries.get(), 0)), statics(PyTuple_GET_ITEM(entries.get(), 1));
  if (keys.size() > std::numeric_limits<std::uint16_t>::max()) return false;
  const auto num_children = static_cast<std::size_t>(PySequence_Fast_GET_SIZE(level.children.get()));
  spec_.nodes[begin_node(Kind::kEntries, num_children, &info)].entries = static_cast<std::uint16_t>(keys.size());
  // The names of the static slots, and of the static entries, whose keys are the last.
  std::vector<PyObject*> names;
  for (const Slot& slot : info.layout->statics) names.push_back(slot.name.get());
  names.insert(names.end(), keys.end() - (statics.end() - statics.begin()) + static_cast<Py_ssize_t>(names.size()),
               keys.end());
  auto name = names.begin();
  for (PyObject* value : statics) {
    below([&] { return PyUnicode_Check(*name) ? attribute_segment(*name) : key_segment(*name); },
          [&] { add_static(Ref::borrow(value), Unhashable::kCompare); });
    ++name;
  }
  for (PyObject* key : keys) add_static(Ref::borrow(key), Unhashable::kRefuse);
  return true;
}

void Flattener::registered(PyObject* object, const TypeInfo& info, std::size_t index) {
  const TypeInfoPtr keep = TypeTable::instance().shared(info);
  const OneLevel level = flatten_registered(object, info);
  const auto count = static_cast<std::size_t>(PySequence_Fast_GET_SIZE(level.children.get()));
  if (!begin_entries(object, info, level)) {
    begin_node(Kind::kRegistered, count, &info);
    below([] { return ".<aux data>"; }, [&] { add_static(level.aux, Unhashable::kCompare); });
  }
  name_children(object);
  // They may be a list that the node itself keeps, which user code may shrink meanwhile.
  const auto child = [&](std::size_t i) {
    Ref item = item_of(level.children.get(), static_cast<Py_ssize_t>(i));
    if (!item) changed_while_walking();
    return item;
  };
  sequence(count, child, object, index);
}

// ---- What else is traced.

DynamicRule::DynamicRule(PyObject* option, PyObject* static_parameters) {
  if (static_parameters != Py_None) {
    native_ = Predicate::kIsArrayLike;
    static_parameters_ = Ref::borrow(static_parameters);
    return;
  }
  if (option == Py_None) return;
  const int native = predicate_of(option);
  if (PyTuple_Check(option)) {
    native_ = Predicate::kIsArrayLike;
    names_ = Ref::borrow(option);
  } else if (native >= 0) {
    native_ = static_cast<Predicate>(native);
  } else {
    predicate_ = Ref::borrow(option);
  }
}

std::vector<bool> DynamicRule::values(std::size_t count, const Ref& shape) const {
  return names_ ? values_meant(names_, shape) : std::vector<bool>(count, true);
}

std::vector<bool> DynamicRule::static_values(const Ref& shape) const {
  return static_parameters_ ? values_meant(static_parameters_, shape) : std::vector<bool>();
}

bool DynamicRule::holds(PyObject* leaf) const {
  if (native_) return partax::holds(*native_, leaf);
  if (!predicate_ || !is_truthy(predicate_.get(), leaf, "asking `dynamic` about")) return false;
  if (!partax::holds(Predicate::kIsArrayLike, leaf)) {
    throw WalkError::diagnosed(PyExc_TypeError,
                               "found a `" + type_name(leaf) +
                                   "` that `dynamic` asks to trace, expected an array or a number; make "
                                   "the predicate False for it");
  }
  return true;
}

}  // namespace partax
