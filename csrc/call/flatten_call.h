// The values of a call -> static part and dynamic leaves.
#pragma once

#include "base/error_path.h"
#include "call/bound_call.h"
#include "call/call_cache.h"
#include "tree/flatten.h"
#include "tree/leaf_buffer.h"

namespace partax {

// How the values of a call are flattened.
FlattenOptions flatten_options(const CallCache& cache, const BoundCall& call, bool abstract);

// Flattens the values of a call; `names()` gives the roots of their paths, for errors only. Raises PythonError.
template <typename GetNames>
void flatten_call(TreeSpec& spec, LeafBuffer& leaves, const FlattenOptions& options, PyObject* const* values,
                  std::size_t count, GetNames&& names) {
  try {
    Flattener(spec, leaves, options).call(values, count);
  } catch (const WalkError& error) {
    const Ref roots = names();
    PyObject* root = PyTuple_GetItem(roots.get(), static_cast<Py_ssize_t>(error.origin()));
    if (root == nullptr) throw PythonError{};
    error.raise(exact_text(root));
    throw PythonError{};
  }
}

// What the values of a call are flattened to, as Python takes it: see `spec_data`.
Ref call_data(const CallCache& cache, const BoundCall& call, bool abstract, LeafBuffer& leaves);

}  // namespace partax
