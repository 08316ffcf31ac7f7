#include "partition/one_level.h"

#include <algorithm>

#include "base/python_hooks.h"
#include "tree/spec_data.h"

namespace partax {

void flatten_into(Flat& flat, PyObject* tree, const FlattenOptions& options) {
  Flattener(flat.spec, flat.leaves, options).tree(tree);
}

FlattenOptions every_leaf(PyObject* is_leaf) {
  FlattenOptions options;
  options.hashed = false;
  options.every_leaf = true;
  options.is_leaf = null_if_none(is_leaf);
  return options;
}

FlattenOptions children_only() {
  FlattenOptions options = every_leaf(Py_None);
  options.one_level = true;
  return options;
}

bool is_node(PyObject* object) { return TypeTable::instance().find_in_tree(object).kind != Kind::kStaticLeaf; }

namespace {

bool equal_statics(const StaticValue& a, const StaticValue& b) {
  if (a.absent() || b.absent()) return a.absent() && b.absent();
  const Ref left = a.value(), right = b.value();
  if (left.get() == right.get()) return true;
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

// The path below a tree, and the message, of its difference from the tree of `what`. `actual` is null for a leaf.
std::pair<std::string, std::string> tree_difference(const TreeSpec& expected, const TreeSpec* actual, const Ref& detail,
                                                    const std::string& what) {
  const Ref root = root_of("");
  const Ref data = actual != nullptr ? spec_data(*actual, root) : Ref::borrow(Py_None);
  const Ref texts = python::difference(spec_data(expected, root), data, detail, exact_unicode(what));
  return {exact_text(PyTuple_GET_ITEM(texts.get(), 0)), exact_text(PyTuple_GET_ITEM(texts.get(), 1))};
}

// The same tree once more, with the names that jax gives the children of registered nodes.
TreeSpec with_names(PyObject* tree, FlattenOptions options) {
  Flat named;
  options.keyed = true;
  flatten_into(named, tree, options);
  return std::move(named.spec);
}

}  // namespace

bool are_alike(const TreeSpec& a, const TreeSpec& b) {
  if (!have_same_nodes(a, b)) return false;
  for (std::size_t i = 0; i < a.statics.size(); ++i) {
    if (!equal_statics(a.statics[i], b.statics[i])) return false;
  }
  return true;
}

void check_equal_statics(const TreeSpec& expected, const TreeSpec& actual, PyObject* tree,
                         const FlattenOptions& options, const std::string& what) {
  for (std::size_t i = 0; i < actual.statics.size(); ++i) {
    const auto difference = [&] {  // it flattens the tree once more, which may raise errors with paths
      const TreeSpec named = with_names(tree, options);
      return tree_difference(expected, have_same_nodes(named, actual) ? &named : &actual, number(i), what);
    };
    const auto are_equal = [&] { return equal_statics(expected.statics[i], actual.statics[i]); };
    if (below([&] { return difference().first; }, are_equal)) continue;
    const auto [path, message] = difference();
    WalkError error = WalkError::diagnosed(PyExc_ValueError, message);
    error.prepend(path);
    throw error;
  }
}

void open_alike(const Flat& prefix, PyObject* object, Flat& level, const std::string& what) {
  const FlattenOptions options = children_only();
  const bool opens = object != Py_None && is_node(object);
  if (opens) flatten_into(level, object, options);
  if (opens && have_same_nodes(prefix.spec, level.spec)) {
    check_equal_statics(prefix.spec, level.spec, object, options, what);
    return;
  }
  const TreeSpec* const actual = opens ? &level.spec : nullptr;
  const std::string message = tree_difference(prefix.spec, actual, unicode(type_name(object)), what).second;
  throw WalkError::diagnosed(PyExc_ValueError, message);
}

}  // namespace partax
