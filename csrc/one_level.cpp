#include "one_level.h"

#include <algorithm>
#include <cstring>

namespace partax {

void flatten_into(Flat& flat, PyObject* tree, const FlattenOptions& options) {
  try {
    Flattener(flat.spec, flat.leaves, options).tree(tree);
  } catch (const PythonError&) {
    throw WalkError::from_user_code("reading");
  }
}

FlattenOptions every_leaf(PyObject* is_leaf) {
  FlattenOptions options;
  options.hashed = false;
  options.rebuildable = true;
  options.every_leaf = true;
  options.is_leaf = is_leaf;
  return options;
}

FlattenOptions children_only() {
  FlattenOptions options = every_leaf(nullptr);
  options.one_level = true;
  return options;
}

bool is_node(PyObject* object) { return TypeTable::instance().find(object).kind != Kind::kStaticLeaf; }

bool is_truthy(PyObject* callable, PyObject* argument, const char* doing) {
  const Ref answer = Ref::steal(PyObject_CallOneArg(callable, argument));
  const int truth = answer ? PyObject_IsTrue(answer.get()) : -1;
  if (truth < 0) throw WalkError::from_user_code(doing);
  return truth == 1;
}

bool have_like_nodes(const TreeSpec& a, const TreeSpec& b) {
  return a.statics.size() == b.statics.size() &&
         std::equal(a.nodes.begin(), a.nodes.end(), b.nodes.begin(), b.nodes.end(), [](const Node& x, const Node& y) {
           return x.kind == y.kind && x.info == y.info && x.arity == y.arity &&
                  x.has_wrapper_fields == y.has_wrapper_fields;
         });
}

namespace {

// A NaN is equal to itself.
bool have_same_bits(PyObject* a, PyObject* b) {
  if (!PyFloat_CheckExact(a) || !PyFloat_CheckExact(b)) return false;
  const double left = PyFloat_AS_DOUBLE(a), right = PyFloat_AS_DOUBLE(b);
  return std::memcmp(&left, &right, sizeof left) == 0;
}

bool are_equal(const StaticValue& a, const StaticValue& b) {
  if (a.absent() || b.absent()) return a.absent() && b.absent();
  const Ref left = a.value(), right = b.value();
  if (left.get() == right.get() || have_same_bits(left.get(), right.get())) return true;
  const Ref answer = Ref::steal(PyObject_RichCompare(left.get(), right.get(), Py_EQ));
  const int truth = answer ? PyObject_IsTrue(answer.get()) : -1;
  if (truth >= 0) return truth == 1;
  const std::string types = "a `" + type_name(left.get()) + "` with a `" + type_name(right.get()) + "`";
  const std::string failed =
      answer ? " by `==` gave a `" + type_name(answer.get()) + "` that is neither true nor false" : " by `==` raised";
  throw WalkError::diagnosed(PyExc_TypeError, "comparing " + types + failed +
                                                  ", expected static parts that compare; mend `__eq__`, or store "
                                                  "something else there");
}

bool has_statics(const Node& node) {
  switch (node.kind) {
    case Kind::kModule:
    case Kind::kDataclass:
      return node.has_wrapper_fields || !node.info->static_names.empty();
    case Kind::kDict:
    case Kind::kOrderedDict:
      return node.arity > 0;
    case Kind::kDefaultDict:
    case Kind::kRegistered:
    case Kind::kStatic:
      return true;
    default:
      return false;
  }
}

// The node that a static value belongs to.
std::size_t owner_of(const TreeSpec& spec, std::size_t index) {
  std::size_t owner = 0;
  for (std::size_t i = 0; i < spec.nodes.size(); ++i) {
    // Leaves and nodes without static values have the same beginning as what follows them.
    if (spec.nodes[i].first_static <= index && has_statics(spec.nodes[i])) owner = i;
  }
  return owner;
}

// The segment of a static value below its node; empty for keys, and for a node that is its own.
std::string static_segment(const Node& node, std::size_t index) {
  const std::size_t place = index - node.first_static;
  switch (node.kind) {
    case Kind::kRegistered:
      return ".<aux data>";
    case Kind::kDefaultDict:
      return place == 0 ? ".default_factory" : "";
    case Kind::kModule:
    case Kind::kDataclass: {
      const std::vector<Ref>& names = node.info->static_names;
      if (place < names.size()) return attribute_segment(names[place].get());
      return attribute_segment(
          PyTuple_GET_ITEM(hooks().wrapper_names.get(), static_cast<Py_ssize_t>(place - names.size())));
    }
    default:
      return "";
  }
}

bool is_dict(Kind kind) noexcept {
  return kind == Kind::kDict || kind == Kind::kOrderedDict || kind == Kind::kDefaultDict;
}

// The segment of a child; `names` are those of the children of a registered node.
std::string segment_of(const TreeSpec& spec, const Node& node, std::size_t child,
                       const std::vector<std::string>& names) {
  switch (node.kind) {
    case Kind::kModule:
    case Kind::kDataclass:
    case Kind::kNamedTuple:
      if (child < node.info->child_names.size()) return attribute_segment(node.info->child_names[child].get());
      break;
    case Kind::kDict:
    case Kind::kOrderedDict:
    case Kind::kDefaultDict:
      return key_segment(spec.statics[first_key(node) + child].value().get());
    case Kind::kRegistered:
      if (child < names.size()) return names[child];
      return "[<flat index " + std::to_string(child) + ">]";
    default:
      break;
  }
  return index_segment(static_cast<Py_ssize_t>(child));
}

// The segments that lead to a node, outermost first.
std::vector<std::string> path_to(const TreeSpec& spec, std::size_t target) {
  std::vector<std::string> path;
  std::size_t at = 0, registered = 0;  // how many registered nodes are before this one
  while (at != target) {
    const Node& node = spec.nodes[at];
    const std::vector<std::string> names =
        node.kind == Kind::kRegistered ? spec.segments.at(registered) : std::vector<std::string>();
    std::size_t child = 0, next = at + 1;
    for (; next + spec.nodes[next].extent <= target; next += spec.nodes[next].extent) ++child;
    path.push_back(segment_of(spec, node, child, names));
    for (; at != next; ++at) {
      if (spec.nodes[at].kind == Kind::kRegistered) ++registered;
    }
  }
  return path;
}

// A node for messages.
std::string described(const TreeSpec& spec, const Node& node, bool with_size) {
  if (node.info == nullptr) return "None";
  std::string type = std::string("a `") + node.info->type->tp_name + "`";
  if (is_dict(node.kind)) {
    const Ref keys = Ref::checked(PyList_New(0));
    for (std::size_t i = 0; i < node.arity; ++i) {
      checked_int(PyList_Append(keys.get(), spec.statics[first_key(node) + i].value().get()));
    }
    return type + " with the keys " + shown(keys.get());
  }
  if (!with_size) return type;
  return type + " with " + std::to_string(node.arity) + (node.arity == 1 ? " child" : " children") +
         (node.has_wrapper_fields ? " whose attributes are not just its fields" : "");
}

std::string shown_static(const StaticValue& value) { return value.absent() ? "no value" : shown(value.value().get()); }

WalkError difference(const TreeSpec& expected, const TreeSpec& found, std::size_t index, const std::string& what) {
  const Node& node = found.nodes[owner_of(found, index)];
  if (is_dict(node.kind) && index >= first_key(node)) {
    const Node& other = expected.nodes[owner_of(expected, index)];
    return WalkError::diagnosed(PyExc_ValueError, "found " + described(found, node, true) + ", expected " +
                                                      described(expected, other, true) + ", as " + what +
                                                      " has here; make both alike");
  }
  const std::string text = shown_static(found.statics[index]), other_text = shown_static(expected.statics[index]);
  return WalkError::diagnosed(PyExc_ValueError,
                              "found " + text + ", expected " + other_text + ", as " + what + " has here" +
                                  (text == other_text ? " (they look alike, but are not equal)" : "") +
                                  "; static parts of trees side by side must be equal by `==`");
}

}  // namespace

void check_equal_statics(const TreeSpec& expected, const TreeSpec& found, PyObject* tree, const FlattenOptions& options,
                         const std::string& what) {
  for (std::size_t i = 0; i < found.statics.size(); ++i) {
    try {
      if (!are_equal(expected.statics[i], found.statics[i])) throw difference(expected, found, i, what);
    } catch (WalkError& error) {
      const std::size_t owner = owner_of(found, i);
      error.prepend(static_segment(found.nodes[owner], i));
      if (owner != 0) {
        Flat named;  // once more, with the names that jax gives the children of registered nodes
        FlattenOptions keyed = options;
        keyed.keyed = true;
        flatten_into(named, tree, keyed);
        const bool is_as_before = named.spec.nodes.size() == found.nodes.size();
        std::vector<std::string> path;
        if (is_as_before) path = path_to(named.spec, owner);
        for (auto segment = path.rbegin(); segment != path.rend(); ++segment) error.prepend(*segment);
      }
      throw;
    }
  }
}

void open_alike(const Flat& prefix, PyObject* object, Flat& level, const std::string& what) {
  const Node& node = prefix.spec.nodes[0];
  std::string found = "a `" + type_name(object) + "`";
  if (object != Py_None && is_node(object)) {
    const FlattenOptions options = children_only();
    flatten_into(level, object, options);
    if (have_like_nodes(prefix.spec, level.spec)) {
      check_equal_statics(prefix.spec, level.spec, object, options, what);
      return;
    }
    const Node& other = level.spec.nodes[0];
    found = described(level.spec, other, other.info == node.info);
  }
  const std::string expected = described(prefix.spec, node, true);
  throw WalkError::diagnosed(PyExc_ValueError, "found " + found + ", expected the structure of " + what +
                                                   ", which has " + expected + " here; make both alike");
}

std::string child_segment(const Flat& level, PyObject* node, std::size_t child) {
  const Node& opened = level.spec.nodes[0];
  std::vector<std::string> names;
  if (opened.kind == Kind::kRegistered) names = registered_segments(node, opened.arity);
  return segment_of(level.spec, opened, child, names);
}

}  // namespace partax
