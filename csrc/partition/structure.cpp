#include "base/boxed.h"
#include "base/error_path.h"
#include "partition/one_level.h"
#include "partition/partition.h"
#include "tree/rebuild.h"

namespace partax {

Ref tree_flatten(PyObject* tree, PyObject* is_leaf) {
  FlattenOptions options = every_leaf(is_leaf);
  options.dynamic_runs = true;
  return with_path("pytree", [&] {
    Flat flat;
    flatten_into(flat, tree, options);
    return tuple_of({flat.leaves.list(), box(std::make_unique<TreeSpec>(std::move(flat.spec)))});
  });
}

Ref tree_unflatten(PyObject* structure, PyObject* leaves) {
  if (Py_TYPE(structure) != Boxed<TreeSpec>::type) raise_error(PyExc_TypeError, "expected a Structure");
  const TreeSpec& tree = Boxed<TreeSpec>::in(structure);
  const Ref values = Ref::checked(PyList_AsTuple(leaves));  // which user code cannot change
  if (static_cast<std::size_t>(PyTuple_GET_SIZE(values.get())) != tree.num_dynamic) {
    raise_error(PyExc_ValueError, "expected as many leaves as the structure has");
  }
  return rebuild(tree, Items(values.get()).begin(), tree.num_dynamic);
}

}  // namespace partax
