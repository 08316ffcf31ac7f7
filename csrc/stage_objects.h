// The stages of a call as objects of their own, for tests and tools: a tree's static part, and a table by it.
#pragma once

#include "binding.h"
#include "call_cache.h"
#include "described.h"
#include "flatten.h"
#include "match.h"
#include "rebuild.h"

namespace partax {

namespace py = pybind11;

// The static part of one tree: `loose` rebuilds, `sealed` compares.
struct Spec {
  TreeSpec loose;
  TreeSpec sealed;
  std::string root;
};

class ListLeaves final : public LeafSource {
 public:
  explicit ListLeaves(const py::list& leaves) : leaves_(leaves) {}
  Ref leaf(std::size_t index) override {
    return Ref::borrow(PyList_GET_ITEM(leaves_.ptr(), static_cast<Py_ssize_t>(index)));
  }

 private:
  const py::list& leaves_;
};

inline py::list as_list(const LeafBuffer& leaves) {
  py::list list;
  for (std::size_t i = 0; i < leaves.size(); ++i) list.append(py::handle(leaves[i]));
  return list;
}

inline TreeSpec flatten_tree(PyObject* tree, const std::string& root, LeafBuffer& leaves) {
  TreeSpec spec;
  FlattenOptions options;
  options.rebuildable = true;
  options.keyed = true;
  with_path(root.c_str(), [&] { Flattener(spec, leaves, options).tree(tree); });
  return spec;
}

inline py::tuple flatten(const py::object& tree, const py::str& root) {
  LeafBuffer leaves;
  auto spec = std::make_unique<Spec>();
  spec->root = exact_text(root.ptr());
  spec->loose = flatten_tree(tree.ptr(), spec->root, leaves);
  spec->sealed = spec->loose.sealed(nullptr);
  return py::make_tuple(as_list(leaves), give(box(std::move(spec))));
}

inline py::object match(const Spec& spec, const py::object& tree) {
  LeafBuffer leaves;
  if (!match_tree(spec.sealed, tree.ptr(), leaves)) return py::none();
  return as_list(leaves);
}

inline py::object rebuild_tree(const Spec& spec, const py::object& leaves) {
  const py::list list = give(Ref::checked(PySequence_List(leaves.ptr())));
  if (list.size() != spec.loose.num_dynamic) {
    throw py::value_error("found " + std::to_string(list.size()) + " leaves, expected " +
                          std::to_string(spec.loose.num_dynamic));
  }
  ListLeaves source(list);
  return give(rebuild(spec.loose, source));
}

inline std::string spec_repr(const Spec& spec) {
  return "TreeSpec(" + std::to_string(spec.loose.num_nodes()) + " nodes, " + std::to_string(spec.loose.num_dynamic) +
         " dynamic and " + std::to_string(spec.loose.num_static_leaves()) + " static leaves)";
}

// A table of Python objects by static part, as a call cache has it.
class ObjectTable {
 public:
  explicit ObjectTable(std::size_t max_size) : table_(max_size, may_wait) {}
  py::object get(const py::object& tree) {
    LeafBuffer leaves;
    const EntryPtr entry = find(flatten_tree(tree.ptr(), "tree", leaves));
    return entry ? py::reinterpret_borrow<py::object>(entry->value.get()) : py::none();
  }
  void set(const py::object& tree, const py::object& value) {
    LeafBuffer leaves;
    const TreeSpec spec = flatten_tree(tree.ptr(), "tree", leaves);
    try {
      const EntryPtr entry = table_.find_or_insert(spec, CallShape());
      entry->value = Ref::borrow(value.ptr());
    } catch (const WalkError& error) {
      raise_at_static(error, spec, root_of("tree"));
    }
  }
  py::object size() const { return number(table_.size()); }
  void clear() { table_.clear(); }

 private:
  EntryPtr find(const TreeSpec& spec) {
    try {
      return table_.find(spec, CallShape());
    } catch (const WalkError& error) {
      raise_at_static(error, spec, root_of("tree"));
    }
  }

  StaticTable table_;
};

inline PyObject* new_table(PyTypeObject*, PyObject* args, PyObject* kwargs) noexcept {
  return guarded<PyObject*>(nullptr, [&] {
    Py_ssize_t max_size = 0;
    const char* names[] = {"max_size", nullptr};
    if (PyArg_ParseTupleAndKeywords(args, kwargs, "n:StaticTable", const_cast<char**>(names), &max_size) == 0) {
      throw PythonError{};
    }
    if (max_size < 0) {
      PyErr_SetString(PyExc_ValueError, "found a negative `max_size`, expected a number of objects");
      throw PythonError{};
    }
    return box(std::make_unique<ObjectTable>(static_cast<std::size_t>(max_size))).release();
  });
}

template <>
struct IsBoxed<Spec> : std::true_type {};
template <>
struct IsBoxed<ObjectTable> : std::true_type {};

}  // namespace partax
