#include "partition/path_rows.h"

#include <algorithm>
#include <utility>

#include "base/python_hooks.h"

namespace partax {
namespace {

// How the children of a node are named, by the numbers that partax._pytree.paths has.
enum class Names : std::uint8_t { kIndices, kFields, kKeys, kEntries };

bool is_static_leaf(Kind kind) noexcept { return kind == Kind::kStaticLeaf || kind == Kind::kStaticRun; }

// The children of a node without its static leaves.
struct Children {
  std::vector<std::size_t> indices;  // in order; empty unless there are static leaves
  bool has_static = false, are_leaves = true;
};

Children children_of(const TreeSpec& spec, std::size_t index) {
  Children children;
  std::size_t child = 0;
  for (std::size_t at = index + 1, end = index + spec.nodes[index].extent; at < end; at += spec.nodes[at].extent) {
    const Kind kind = spec.nodes[at].kind;
    const std::size_t count = kind == Kind::kStaticRun || kind == Kind::kDynamicRun ? spec.nodes[at].arity : 1;
    if (is_static_leaf(kind) && !children.has_static) {
      children.has_static = true;
      for (std::size_t before = 0; before < child; ++before) children.indices.push_back(before);
    }
    for (std::size_t i = 0; i < count && children.has_static && !is_static_leaf(kind); ++i) {
      children.indices.push_back(child + i);
    }
    children.are_leaves = children.are_leaves && (is_leaf_kind(kind) || is_static_leaf(kind));
    child += count;
  }
  return children;
}

Ref row_of(const TreeSpec& spec, std::size_t index, const Children& children, PyObject* object) {
  const Node& node = spec.nodes[index];
  const std::size_t count = children.has_static ? children.indices.size() : node.arity;
  const auto row = [&](Names kind, const Ref& names) {
    return Ref::checked(PyTuple_Pack(4, number(static_cast<std::size_t>(kind)).get(), names.get(), number(count).get(),
                                     children.are_leaves ? Py_True : Py_False));
  };
  const auto named_row = [&](Names kind, auto&& name) {
    std::vector<Ref> names;
    names.reserve(count);
    for (std::size_t i = 0; i < count; ++i) names.push_back(name(children.has_static ? children.indices[i] : i));
    return row(kind, tuple_of(std::move(names)));
  };
  if (is_dict(node.kind)) {
    return named_row(Names::kKeys, [&](std::size_t i) { return spec.statics[first_key_index(node) + i].value(); });
  }
  if (is_named_by_functions(node.kind)) {
    const Ref keys = python::child_keys(object);
    const auto num_keys = static_cast<std::size_t>(PyTuple_GET_SIZE(keys.get()));
    return named_row(Names::kEntries, [&](std::size_t i) {
      return i < num_keys ? Ref::borrow(PyTuple_GET_ITEM(keys.get(), static_cast<Py_ssize_t>(i))) : number(i);
    });
  }
  if (node.info != nullptr && node.arity != 0 && node.info->child_names.size() >= node.arity) {
    return named_row(Names::kFields, [&](std::size_t i) { return node.info->child_names[i]; });
  }
  if (children.has_static) return named_row(Names::kIndices, [](std::size_t i) { return number(i); });
  return row(Names::kIndices, Ref::borrow(Py_None));
}

}  // namespace

std::vector<PyObject*> nodes_by_index(const TreeSpec& spec, const std::vector<Ref>& nodes) {
  std::vector<PyObject*> by_index(spec.nodes.size(), nullptr);
  std::size_t next = 0;
  for (std::size_t i = 0; i < spec.nodes.size(); ++i) {
    const bool is_node = !is_leaf_kind(spec.nodes[i].kind) && !is_static_leaf(spec.nodes[i].kind);
    if (is_node && next < nodes.size()) by_index[i] = nodes[next++].get();
  }
  return by_index;
}

Ref path_rows(const TreeSpec& spec, const std::vector<PyObject*>& nodes) {
  std::vector<Ref> rows;
  std::vector<std::size_t> ends;  // of the open nodes, in the spec
  std::size_t leaves = 0;         // in a row
  const auto add_leaves = [&] {
    if (leaves != 0) rows.push_back(number(std::exchange(leaves, 0)));
  };
  for (std::size_t at = 0; at <= spec.nodes.size(); ++at) {
    for (; !ends.empty() && ends.back() == at; ends.pop_back()) {
      add_leaves();
      rows.push_back(Ref::borrow(Py_None));
    }
    if (at == spec.nodes.size()) break;
    const Node& node = spec.nodes[at];
    if (is_leaf_kind(node.kind)) leaves += std::max(node.arity, 1U);
    if (is_leaf_kind(node.kind) || is_static_leaf(node.kind)) continue;
    add_leaves();
    const Children children = children_of(spec, at);
    rows.push_back(row_of(spec, at, children, nodes[at]));
    if (children.are_leaves) {
      at += node.extent - 1;
    } else {
      ends.push_back(at + node.extent);
    }
  }
  add_leaves();
  return tuple_of(std::move(rows));
}

}  // namespace partax
