#include "one_level.h"

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

void open_alike(const Flat& prefix, PyObject* object, Flat& level, const char* what) {
  bool alike = object != Py_None && is_node(object);
  if (alike) {
    flatten_into(level, object, children_only());
    const Node &a = prefix.spec.nodes[0], &b = level.spec.nodes[0];
    alike = a.kind == b.kind && a.info == b.info && a.arity == b.arity;
    for (std::size_t i = 0; alike && i < prefix.spec.statics.size(); ++i) {
      alike = prefix.spec.statics[i].equals(level.spec.statics[i]);
    }
  }
  if (alike) return;
  const Node& node = prefix.spec.nodes[0];
  const std::string expected = node.info == nullptr ? std::string("None")
                                                    : std::string("a `") + node.info->type->tp_name + "` with " +
                                                          std::to_string(node.arity) + " children";
  throw WalkError::diagnosed(PyExc_ValueError, "found a `" + type_name(object) + "`, expected the structure of " +
                                                   what + ", which has " + expected + " here; make both alike");
}

std::string child_segment(const Flat& level, std::size_t child) {
  struct Search {
    std::size_t left;
    std::string path;
  } search{child, "[?]"};
  each_leaf(
      level.spec, {""},
      [](void* context, const std::string& path, std::ptrdiff_t) {
        auto* wanted = static_cast<Search*>(context);
        if (wanted->left-- == 0) wanted->path = path;
      },
      &search);
  return search.path;
}

}  // namespace partax
