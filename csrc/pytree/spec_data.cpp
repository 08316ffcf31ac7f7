#include "pytree/spec_data.h"

#include "base/error_path.h"
#include "base/python_hooks.h"

namespace partax {
namespace {

// The names of the static parts of a kEntries node.
std::vector<Ref> entry_names(const TreeSpec& spec, const Node& node) {
  const EntryPlaces at(node);
  std::vector<Ref> names;
  for (const Slot& slot : node.info->layout->statics) names.push_back(slot.name);
  for (std::size_t i = at.children; i < node.entries; ++i) {
    const Ref key = spec.statics[at.keys + i].value();
    names.push_back(key ? Ref::checked(PyObject_Str(key.get())) : exact_unicode("<dropped>"));
  }
  return names;
}

std::vector<Ref> field_names(const TreeSpec& spec, const Node& node) {
  if (node.kind == Kind::kEntries) return entry_names(spec, node);
  std::vector<Ref> names;
  if (node.info == nullptr || node.kind == Kind::kNamedTuple) return names;
  names = node.info->static_names;
  if (!node.has_wrapper_fields) return names;
  for (PyObject* name : Items(hooks.wrapper_names.get())) names.push_back(Ref::borrow(name));
  return names;
}

Ref node_data(const TreeSpec& spec, const Node& node) {
  const std::vector<Ref> names = node.info == nullptr ? std::vector<Ref>() : node.info->child_names;
  const Ref children = tuple_of(names), fields = tuple_of(field_names(spec, node));
  const char* const name = node.info == nullptr ? "None" : node.info->type->tp_name;
  PyObject* const type = node.info == nullptr ? Py_None : reinterpret_cast<PyObject*>(node.info->type);
  return Ref::checked(Py_BuildValue("(sOsIIOO)", kind_name(node.kind), type, name, node.arity, node.first_static,
                                    children.get(), fields.get()));
}

}  // namespace

Ref static_data(std::vector<StaticValue>::const_iterator first, std::vector<StaticValue>::const_iterator end) {
  std::vector<Ref> items;
  items.reserve(static_cast<std::size_t>(end - first));
  for (; first != end; ++first) {
    const Ref value = first->value();
    items.push_back(first->absent() ? Ref::checked(PyTuple_New(0)) : value ? tuple_of({value}) : Ref::borrow(Py_None));
  }
  return tuple_of(std::move(items));
}

Ref node_names(const TreeSpec& spec, const std::vector<Ref>& child_keys) {
  std::vector<Ref> nodes, keys;
  nodes.reserve(spec.nodes.size());
  std::size_t next = 0;
  for (const Node& node : spec.nodes) {
    nodes.push_back(node_data(spec, node));
    if (is_dict(node.kind)) {
      const auto first = spec.statics.begin() + static_cast<std::ptrdiff_t>(first_key_index(node));
      keys.push_back(static_data(first, first + node.arity));
    } else if (is_named_by_functions(node.kind) && next < child_keys.size()) {
      keys.push_back(child_keys[next++]);
    } else if (is_named_by_functions(node.kind)) {
      keys.push_back(Ref::checked(PyTuple_New(0)));
    }
  }
  return tuple_of({tuple_of(std::move(nodes)), tuple_of(std::move(keys))});
}

Ref spec_data(const TreeSpec& spec, const Ref& roots) {
  const Ref statics = static_data(spec.statics.begin(), spec.statics.end());
  return python::spec_data(node_names(spec, spec.child_keys), statics, roots);
}

Ref root_of(const std::string& name) { return tuple_of({exact_unicode(name)}); }

std::string static_path(const TreeSpec& spec, const Ref& roots, std::size_t index) {
  return exact_text(python::static_path(spec_data(spec, roots), number(index)).get());
}

}  // namespace partax
