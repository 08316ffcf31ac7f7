#include "tree/spec_data.h"

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
    names.push_back(key ? Ref::checked(PyObject_Str(key.get())) : unicode("<dropped>"));
  }
  return names;
}

std::vector<Ref> field_names(const TreeSpec& spec, const Node& node) {
  if (node.kind == Kind::kEntries) return entry_names(spec, node);
  std::vector<Ref> names;
  if (node.info == nullptr || node.kind == Kind::kNamedTuple) return names;
  names = node.info->static_names;
  if (!node.has_wrapper_fields) return names;
  for (PyObject* name : Items(equinox().wrapper_names.get())) names.push_back(Ref::borrow(name));
  return names;
}

// () where the field is absent, None where the value is gone.
Ref static_data(const StaticValue& held) {
  if (held.absent()) return Ref::checked(PyTuple_New(0));
  const Ref value = held.value();
  return value ? Ref::checked(PyTuple_Pack(1, value.get())) : Ref::borrow(Py_None);
}

// The step to the value of a key. Runs its `repr`.
Ref key_step(const StaticValue& held) {
  const Ref key = held.value();
  return unicode(key ? key_segment(key.get()) : "[<dropped>]");
}

Ref joined(const Ref& path, PyObject* step) { return Ref::checked(PyUnicode_Concat(path.get(), step)); }

class Describer {
 public:
  Describer(const TreeSpec& spec, const Ref& roots) : spec_(spec), roots_(roots) {}

  Ref describe() {
    nodes_.reserve(spec_.nodes.size());
    paths_.reserve(spec_.nodes.size());
    for (const Node& node : spec_.nodes) {
      add(node);
      while (!levels_.empty() && levels_.back().at >= levels_.back().node->arity) close();
    }
    std::vector<Ref> statics;
    statics.reserve(spec_.statics.size());
    for (const StaticValue& held : spec_.statics) statics.push_back(static_data(held));
    return Ref::checked(PyTuple_Pack(3, tuple_of(std::move(nodes_)).get(), tuple_of(std::move(statics)).get(),
                                     tuple_of(std::move(paths_)).get()));
  }

 private:
  // A node whose children are being described.
  struct Level {
    const Node* node;
    Ref path;
    Ref segments;    // of the paths of its children, as far as they have names
    Ref end;         // what stands after them, if it has static fields
    std::size_t at;  // the child that is next
  };

  void add(const Node& node) {
    const bool is_run = node.kind == Kind::kStaticRun || node.kind == Kind::kDynamicRun;
    const bool is_leaf = is_run || node.kind == Kind::kStaticLeaf || node.kind == Kind::kDynamicLeaf;
    const std::vector<Ref> names = node.info == nullptr ? std::vector<Ref>() : node.info->child_names;
    const Ref children = tuple_of(names), fields = tuple_of(field_names(spec_, node));
    const auto data = [&](const char* kind) {
      const char* type_name = node.info == nullptr ? "None" : node.info->type->tp_name;
      PyObject* type = node.info == nullptr ? Py_None : reinterpret_cast<PyObject*>(node.info->type);
      return Ref::checked(Py_BuildValue("(sOsIIOO)", kind, type, type_name, node.arity, node.first_static,
                                        children.get(), fields.get()));
    };
    nodes_.push_back(data(kind_name(node.kind)));
    paths_.push_back(is_run ? run_place() : node.kind == Kind::kCall ? unicode("") : next_path());
    if (!levels_.empty()) levels_.back().at += is_run ? node.arity : 1;
    if (is_leaf) return;
    std::vector<Ref> segments;
    segments.reserve(names.size());
    for (const Ref& name : names) segments.push_back(Ref::checked(PyUnicode_FromFormat(".%U", name.get())));
    levels_.push_back(Level{&node, paths_.back(),
                            is_named_by_functions(node.kind) ? registered_names(node.arity) : tuple_of(segments),
                            PyTuple_GET_SIZE(fields.get()) == 0 ? Ref() : data("end"), 0});
  }

  void close() {
    const Level level = std::move(levels_.back());
    levels_.pop_back();
    if (!level.end) return;
    nodes_.push_back(level.end);
    paths_.push_back(level.path);
  }

  Ref registered_names(std::size_t count) {
    if (registered_ < spec_.segments.size()) return spec_.segments[registered_++];
    std::vector<Ref> names;
    names.reserve(count);
    for (std::size_t i = 0; i < count; ++i)
      names.push_back(Ref::checked(PyUnicode_FromFormat("[<flat index %zu>]", i)));
    return tuple_of(std::move(names));
  }

  // The path of the node that is next.
  Ref next_path() {
    if (levels_.empty()) return root_path(0);
    const Level& level = levels_.back();
    const std::size_t i = level.at;
    if (level.node->kind == Kind::kCall) return root_path(i);
    if (is_dict(level.node->kind)) {
      return joined(level.path, key_step(spec_.statics[first_key_index(*level.node) + i]).get());
    }
    if (i >= static_cast<std::size_t>(PyTuple_GET_SIZE(level.segments.get()))) {
      return Ref::checked(PyUnicode_FromFormat("%U[%zu]", level.path.get(), i));
    }
    return joined(level.path, PyTuple_GET_ITEM(level.segments.get(), static_cast<Py_ssize_t>(i)));
  }

  Ref root_path(std::size_t i) { return Ref::checked(PySequence_GetItem(roots_.get(), static_cast<Py_ssize_t>(i))); }

  // Where a run is: its leaves may be millions, most of them not asked for.
  Ref run_place() {
    const Level& level = levels_.back();
    return Ref::checked(
        Py_BuildValue("(OnO)", level.path.get(), static_cast<Py_ssize_t>(level.at), level.segments.get()));
  }

  const TreeSpec& spec_;
  const Ref& roots_;
  std::vector<Ref> nodes_, paths_;
  std::vector<Level> levels_;
  std::size_t registered_ = 0;  // how many of these nodes there were
};

}  // namespace

Ref spec_data(const TreeSpec& spec, const Ref& roots) { return Describer(spec, roots).describe(); }

Ref root_of(const std::string& name) { return Ref::checked(PyTuple_Pack(1, exact_unicode(name).get())); }

std::string static_path(const TreeSpec& spec, const Ref& roots, std::size_t index) {
  return exact_text(python::static_path(spec_data(spec, roots), number(index)).get());
}

}  // namespace partax
