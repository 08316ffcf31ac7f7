#include "tree_spec.h"

#include <algorithm>
#include <unordered_set>

namespace partax {
std::size_t TreeSpec::num_static_leaves() const noexcept {
  std::size_t count = 0;
  for (const Node& node : nodes) {
    if (node.kind == Kind::kStaticLeaf) ++count;
    if (node.kind == Kind::kStaticRun) count += node.arity;
  }
  return count;
}

std::size_t TreeSpec::num_nodes() const noexcept {
  std::size_t count = nodes.size();
  for (const Node& node : nodes) {
    if (node.kind == Kind::kStaticRun || node.kind == Kind::kDynamicRun) count += node.arity - 1;
  }
  return count;
}

TreeSpec TreeSpec::sealed(PyObject* on_death) const {
  TreeSpec copy;
  copy.nodes = nodes;
  copy.infos = infos;
  copy.num_dynamic = num_dynamic;
  copy.callables = callables;
  copy.hash = hash;
  copy.statics.reserve(statics.size());
  copy.identity.reserve(statics.size());
  for (const StaticValue& value : statics) {
    try {
      copy.statics.push_back(value.sealed(on_death, callables));
    } catch (WalkError& error) {
      error.set_origin(copy.statics.size());
      throw;
    }
    copy.identity.push_back(copy.statics.back().identity());
  }
  for (const TypeInfoPtr& info : infos) {
    auto* type = reinterpret_cast<PyObject*>(info->type);
    copy.types.push_back(info->type->tp_flags & Py_TPFLAGS_HEAPTYPE ? Ref::checked(PyWeakref_NewRef(type, on_death))
                                                                    : Ref::borrow(type));
  }
  return copy;
}

void TreeSpec::weaken_types(const TreeSpec& other) {
  std::unordered_set<PyObject*> known;
  other.each_weakref([&](PyObject* weakref, bool) { known.insert(weak_target(weakref).get()); });
  for (Ref& type : types) {
    if (known.count(type.get()) > 0) type = Ref::checked(PyWeakref_NewRef(type.get(), nullptr));
  }
}

namespace {

// Calls `visit(known, value, index)` for the static values of two specs of the same form that are callables or hold
// some.
template <typename Visit>
void each_pair(const TreeSpec& known, const TreeSpec& values, Visit&& visit) {
  if (known.statics.size() != values.statics.size()) return;
  for (std::size_t i = 0; i < known.statics.size(); ++i) {
    if (!known.statics[i].holds_callables()) continue;
    const Ref value = values.statics[i].value();
    if (value) visit(known.statics[i], value.get(), i);
  }
}

}  // namespace

bool TreeSpec::holds_callables() const noexcept {
  return std::any_of(statics.begin(), statics.end(), [](const auto& value) { return value.holds_callables(); });
}

void TreeSpec::observe(const TreeSpec& values) const {
  each_pair(*this, values, [](const StaticValue& known, PyObject* value, std::size_t) { known.observe(value); });
}

void TreeSpec::stop_sharing(const std::string& reason) const {
  for (const StaticValue& value : statics) value.stop_sharing(reason);
}

bool TreeSpec::may_wait() const noexcept {
  return std::all_of(statics.begin(), statics.end(), [](const auto& value) { return value.may_wait(); });
}

std::pair<std::size_t, std::string> TreeSpec::difference(const TreeSpec& values) const {
  std::pair<std::size_t, std::string> found;
  each_pair(*this, values, [&](const StaticValue& known, PyObject* value, std::size_t index) {
    if (found.second.empty()) found = {index, known.difference(value)};
  });
  return found;
}

bool TreeSpec::equals(const TreeSpec& other) const {
  if (hash != other.hash || nodes.size() != other.nodes.size() || statics.size() != other.statics.size()) return false;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const Node &a = nodes[i], &b = other.nodes[i];
    if (a.kind != b.kind || a.arity != b.arity || a.info != b.info || a.has_wrapper_fields != b.has_wrapper_fields) {
      return false;
    }
  }
  // User code may have this spec replaced, by one of another size; its values stay where they are.
  const StaticValue* const mine = statics.data();
  for (std::size_t i = 0; i < other.statics.size(); ++i) {
    try {
      if (!mine[i].equals(other.statics[i])) return false;
    } catch (WalkError& error) {
      error.set_origin(i);
      throw;
    }
  }
  return true;
}

int TreeSpec::traverse(visitproc visit, void* arg) const {
  for (const Ref& type : types) Py_VISIT(type.get());
  for (const StaticValue& value : statics) {
    if (const int status = value.traverse(visit, arg)) return status;
  }
  return 0;
}

namespace {

constexpr std::uint32_t kLongRun = 16;

bool is_leaf(const Node& node) noexcept {
  return node.kind == Kind::kDynamicLeaf || node.kind == Kind::kStaticLeaf || node.kind == Kind::kStaticRun ||
         node.kind == Kind::kDynamicRun || node.kind == Kind::kStatic;
}

struct Describer {
  const TreeSpec& spec;
  LeafVisitor visit;
  void* context;
  bool all_statics;
  TreeVisitor* visitor = nullptr;
  std::size_t at = 0;
  std::size_t next_registered = 0;

  void report(const std::string& path, std::size_t index) const {
    visit(context, path, static_cast<std::ptrdiff_t>(index));
  }

  std::string key_path(const std::string& path, std::size_t index) const {
    Ref key = spec.statics[index].value();
    return path + (key ? key_segment(key.get()) : "[<dropped>]");
  }

  void walk(const std::string& path) {
    const Node& node = spec.nodes[at++];
    if (visitor != nullptr && !is_leaf(node)) visitor->node(path, node);
    switch (node.kind) {
      case Kind::kDynamicLeaf:
        visit(context, path, -1);
        return;
      case Kind::kStaticLeaf:
        report(path, node.first_static);
        return;
      case Kind::kStaticRun:  // reported by their sequence
      case Kind::kDynamicRun:
      case Kind::kNone:
        return;
      case Kind::kStatic:
        if (all_statics) report(path, node.first_static);
        return;
      case Kind::kDict:
      case Kind::kOrderedDict:
      case Kind::kDefaultDict:
        if (visitor != nullptr && node.kind == Kind::kDefaultDict) report(path + ".default_factory", node.first_static);
        for (std::uint32_t i = 0; i < node.arity; ++i) walk(key_path(path, first_key(node) + i));
        return;
      case Kind::kModule:
      case Kind::kDataclass:
        for (std::uint32_t i = 0; i < node.arity; ++i) walk(path + attribute_segment(node.info->child_names[i].get()));
        if (all_statics) {
          for (std::size_t i = 0; i < node.info->static_names.size(); ++i) {
            if (spec.statics[node.first_static + i].absent()) continue;
            report(path + attribute_segment(node.info->static_names[i].get()), node.first_static + i);
          }
          if (node.has_wrapper_fields) wrapper_fields(path, node);
        }
        return;
      case Kind::kRegistered:
        if (all_statics) report(path + ".<aux data>", node.first_static);
        walk_registered(path, node);
        return;
      case Kind::kNamedTuple:
        walk_sequence(node, [&](std::size_t i) {
          const std::vector<Ref>& names = node.info->child_names;
          return path +
                 (i < names.size() ? attribute_segment(names[i].get()) : index_segment(static_cast<Py_ssize_t>(i)));
        });
        return;
      default:
        walk_sequence(node, [&](std::size_t i) { return path + index_segment(static_cast<Py_ssize_t>(i)); });
    }
  }

  void wrapper_fields(const std::string& path, const Node& node) const {
    PyObject* names = hooks().wrapper_names.get();
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); ++i) {
      const std::size_t index = node.first_static + node.info->static_names.size() + static_cast<std::size_t>(i);
      if (!spec.statics[index].absent()) report(path + attribute_segment(PyTuple_GET_ITEM(names, i)), index);
    }
  }

  void walk_registered(const std::string& path, const Node& node) {
    const std::size_t mine = next_registered++;
    walk_sequence(node, [&](std::size_t i) {
      if (mine < spec.segments.size() && i < spec.segments[mine].size()) return path + spec.segments[mine][i];
      return path + "[<flat index " + std::to_string(i) + ">]";
    });
  }

  // `child_path(i)` gives the path of child i.
  template <typename ChildPath>
  void walk_sequence(const Node& node, ChildPath&& child_path) {
    std::uint32_t i = 0;
    while (i < node.arity) {
      const Node& child = spec.nodes[at];
      const bool is_run = child.kind == Kind::kStaticRun || child.kind == Kind::kDynamicRun;
      const std::uint32_t count = is_run ? child.arity : 1;
      if (visitor != nullptr && child.kind == Kind::kStaticRun && count >= kLongRun &&
          (node.kind == Kind::kTuple || node.kind == Kind::kList)) {
        const std::string first = child_path(i);
        visitor->run(first.substr(0, first.rfind('[')), i, count, child.first_static);
        ++at;
        i += count;
        continue;
      }
      for (std::uint32_t j = 0; j < count; ++j) {
        if (child.kind == Kind::kStaticRun) {
          report(child_path(i + j), child.first_static + j);
        } else if (child.kind == Kind::kDynamicRun) {
          visit(context, child_path(i + j), -1);
        } else {
          walk(child_path(i + j));
        }
      }
      if (is_run) ++at;
      i += count;
    }
  }

  void start(const std::vector<std::string>& roots) {
    if (spec.nodes.empty()) return;
    if (spec.nodes[0].kind == Kind::kCall) {
      at = 1;
      walk_sequence(spec.nodes[0], [&](std::size_t i) {
        return i < roots.size() ? roots[i] : "arguments" + index_segment(static_cast<Py_ssize_t>(i));
      });
    } else {
      walk(roots.empty() ? std::string("tree") : roots[0]);
    }
  }
};

}  // namespace

void each_leaf(const TreeSpec& spec, const std::vector<std::string>& roots, LeafVisitor visit, void* context) {
  Describer{spec, visit, context, false}.start(roots);
}

void each_static(const TreeSpec& spec, const std::vector<std::string>& roots, LeafVisitor visit, void* context) {
  const auto only_static = [](void* inner, const std::string& path, std::ptrdiff_t index) {
    auto* pair = static_cast<std::pair<LeafVisitor, void*>*>(inner);
    if (index >= 0) pair->first(pair->second, path, index);
  };
  std::pair<LeafVisitor, void*> inner{visit, context};
  Describer{spec, only_static, &inner, true}.start(roots);
}

void each_part(const TreeSpec& spec, const std::vector<std::string>& roots, TreeVisitor& visitor) {
  const auto visit = [](void* context, const std::string& path, std::ptrdiff_t index) {
    auto* to = static_cast<TreeVisitor*>(context);
    if (index < 0) {
      to->array(path);
    } else {
      to->value(path, static_cast<std::size_t>(index));
    }
  };
  Describer describer{spec, visit, &visitor, true};
  describer.visitor = &visitor;
  describer.start(roots);
}

std::string static_path(const TreeSpec& spec, const std::vector<std::string>& roots, std::size_t index) {
  struct Search {
    std::ptrdiff_t index;
    std::string found;
  } search{static_cast<std::ptrdiff_t>(index), "the arguments"};
  const auto visit = [](void* context, const std::string& path, std::ptrdiff_t at) {
    auto* wanted = static_cast<Search*>(context);
    if (at == wanted->index) wanted->found = path;
  };
  each_static(spec, roots, visit, &search);
  return search.found;
}

}  // namespace partax
