#include "tree/spec_data.h"

#include <map>

#include "tree/equinox.h"

namespace partax {
namespace {

std::vector<Ref> field_names(const Node& node) {
  std::vector<Ref> names;
  if (node.info == nullptr || node.kind == Kind::kNamedTuple) return names;
  names = node.info->static_names;
  if (!node.has_wrapper_fields) return names;
  PyObject* more = equinox().wrapper_names.get();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(more); ++i) names.push_back(Ref::borrow(PyTuple_GET_ITEM(more, i)));
  return names;
}

// What all nodes of one type have in common, so that a model of thousands of modules makes it once.
struct Names {
  Ref children, fields;
};

Names names_of(const Node& node) {
  return {tuple_of(node.info == nullptr ? std::vector<Ref>() : node.info->child_names), tuple_of(field_names(node))};
}

Ref node_data(const Node& node, const Names& names) {
  PyObject* type = node.info == nullptr ? Py_None : reinterpret_cast<PyObject*>(node.info->type);
  return Ref::checked(Py_BuildValue("(sOsnnOO)", kind_name(node.kind), type,
                                    node.info == nullptr ? "None" : node.info->type->tp_name,
                                    static_cast<Py_ssize_t>(node.arity), static_cast<Py_ssize_t>(node.first_static),
                                    names.children.get(), names.fields.get()));
}

// () where the field is absent, None where the value is gone.
Ref static_data(const StaticValue& held) {
  if (held.absent()) return Ref::checked(PyTuple_New(0));
  const Ref value = held.value();
  return value ? Ref::checked(PyTuple_Pack(1, value.get())) : Ref::borrow(Py_None);
}

}  // namespace

Ref spec_data(const TreeSpec& spec, const Ref& roots) {
  std::vector<Ref> nodes, statics;
  nodes.reserve(spec.nodes.size());
  statics.reserve(spec.statics.size());
  std::size_t registered = 0;
  std::map<std::pair<const TypeInfo*, bool>, Names> known;
  Ref leaf;  // one dynamic leaf is like another
  for (const Node& node : spec.nodes) {
    if (node.kind == Kind::kDynamicLeaf && leaf) {
      nodes.push_back(leaf);
      continue;
    }
    Names& names = known[{node.info, node.has_wrapper_fields}];
    if (!names.fields) names = names_of(node);
    if (node.kind == Kind::kRegistered && registered < spec.segments.size()) {
      std::vector<Ref> segments;
      for (const std::string& segment : spec.segments[registered++]) segments.push_back(exact_unicode(segment));
      nodes.push_back(node_data(node, Names{tuple_of(std::move(segments)), names.fields}));
      continue;
    }
    nodes.push_back(node_data(node, names));
    if (node.kind == Kind::kDynamicLeaf) leaf = nodes.back();
  }
  for (const StaticValue& held : spec.statics) statics.push_back(static_data(held));
  return Ref::checked(
      PyTuple_Pack(3, tuple_of(std::move(nodes)).get(), tuple_of(std::move(statics)).get(), roots.get()));
}

Ref root_of(const std::string& name) { return Ref::checked(PyTuple_Pack(1, exact_unicode(name).get())); }

std::string static_path(const TreeSpec& spec, const Ref& roots, std::size_t index) {
  return exact_text(
      call_python("partax._tree.paths", "static_path", spec_data(spec, roots), Ref::checked(PyLong_FromSize_t(index)))
          .get());
}

void raise_at_static(const WalkError& error, const TreeSpec& spec, const Ref& roots) {
  error.raise(static_path(spec, roots, error.origin()));
  throw PythonError{};
}

}  // namespace partax
