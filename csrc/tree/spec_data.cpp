#include "tree/spec_data.h"

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

Ref node_data(const Node& node, const std::vector<std::string>* segments) {
  std::vector<Ref> children;
  if (segments != nullptr) {
    for (const std::string& segment : *segments) children.push_back(exact_unicode(segment));
  } else if (node.info != nullptr) {
    children = node.info->child_names;
  }
  PyObject* type = node.info == nullptr ? Py_None : reinterpret_cast<PyObject*>(node.info->type);
  return Ref::checked(Py_BuildValue("(sOsnnOO)", kind_name(node.kind), type,
                                    node.info == nullptr ? "None" : node.info->type->tp_name,
                                    static_cast<Py_ssize_t>(node.arity), static_cast<Py_ssize_t>(node.first_static),
                                    tuple_of(std::move(children)).get(), tuple_of(field_names(node)).get()));
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
  std::size_t registered = 0;
  for (const Node& node : spec.nodes) {
    const bool keyed = node.kind == Kind::kRegistered && registered < spec.segments.size();
    nodes.push_back(node_data(node, keyed ? &spec.segments[registered++] : nullptr));
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
