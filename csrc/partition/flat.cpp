#include "partition/flat.h"

#include "base/error_path.h"
#include "base/python_hooks.h"
#include "pytree/spec_data.h"

namespace partax {
namespace {

bool equal_statics(const StaticValue& a, const StaticValue& b) {
  if (a.absent() || b.absent()) return a.absent() && b.absent();
  const Ref left = a.value(), right = b.value();
  const int equal = PyObject_RichCompareBool(left.get(), right.get(), Py_EQ);
  if (equal >= 0) return equal == 1;
  throw WalkError::diagnosed(PyExc_TypeError, "comparing a `" + type_name(left.get()) + "` with a `" +
                                                  type_name(right.get()) +
                                                  "` by `==` raised, expected static parts that compare; mend "
                                                  "`__eq__`, or store something else there");
}

Ref data_of(const Flat& flat) {
  const Ref statics = static_data(flat.spec.statics.begin(), flat.spec.statics.end());
  return python::spec_data(flat.names(), statics, root_of(""));
}

}  // namespace

IsLeaf is_leaf_of(PyObject* callable) {
  if (callable == Py_None) return {};
  return [callable](PyObject* object) { return is_truthy(callable, object, "asking `is_leaf` about"); };
}

Flat::Flat(PyObject* tree, IsLeaf is_leaf) {
  FlattenOptions options;
  options.hashed = false;
  options.every_leaf = true;
  options.is_leaf = std::move(is_leaf);
  options.objects = &objects;
  Flattener(spec, leaves, options).tree(tree);
}

Ref Flat::names() const {
  std::vector<Ref> child_keys;
  for (std::size_t i = 0; i < spec.nodes.size(); ++i) {
    if (is_named_by_functions(spec.nodes[i].kind)) child_keys.push_back(python::child_keys(objects[i]));
  }
  return node_names(spec, child_keys);
}

std::string Flat::path(std::size_t node) const {
  const Ref data = data_of(*this);
  return exact_text(PyTuple_GET_ITEM(PyTuple_GET_ITEM(data.get(), 2), static_cast<Py_ssize_t>(node)));
}

bool are_alike(const TreeSpec& a, const TreeSpec& b) {
  return have_same_nodes(a, b) && std::equal(a.statics.begin(), a.statics.end(), b.statics.begin(), equal_statics);
}

void check_alike(const Flat& expected, std::size_t expected_node, const Flat& actual, std::size_t node,
                 const std::string& what) {
  const auto difference = [&](Py_ssize_t index) {
    const Ref places = Ref::checked(Py_BuildValue("(nnn)", expected_node, node, index));
    const Ref texts = python::difference(data_of(expected), data_of(actual), places,
                                         exact_unicode(type_name(actual.objects[node].get())), exact_unicode(what));
    return std::make_pair(exact_text(PyTuple_GET_ITEM(texts.get(), 0)), exact_text(PyTuple_GET_ITEM(texts.get(), 1)));
  };
  const auto refuse = [&](Py_ssize_t index) {
    const auto [path, message] = difference(index);
    WalkError error = WalkError::diagnosed(PyExc_ValueError, message);
    error.prepend(path);
    throw error;
  };
  if (!is_same_node(expected.spec.nodes[expected_node], actual.spec.nodes[node])) refuse(-1);
  const std::size_t first = expected.spec.nodes[expected_node].first_static;
  for (std::size_t i = 0; first + i < expected.spec.end_statics(expected_node); ++i) {
    const StaticValue& value = actual.spec.statics[actual.spec.nodes[node].first_static + i];
    const auto index = static_cast<Py_ssize_t>(i);
    if (!below([&] { return difference(index).first; },
               [&] { return equal_statics(expected.spec.statics[first + i], value); })) {
      refuse(index);
    }
  }
}

}  // namespace partax
