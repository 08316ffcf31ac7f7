// Compares an object with a spec: collects its dynamic leaves, or stops at the first difference.
#pragma once

#include "base/python_api.h"
#include "pytree/flatten.h"
#include "pytree/kept_values.h"
#include "pytree/leaf_buffer.h"
#include "pytree/tree_spec.h"

namespace partax {

// True, with the dynamic leaves appended to `leaves`, if the values have the static part `spec` (sealed). Runs user
// code only for registered nodes, for static values that are not the identical object, and for `rule` (may be null);
// allocates nothing per leaf. The caller must keep `spec`, whatever that code does to its entry. Raises PythonError.
// What `kept_values` (may be null) has of the values is not looked at.
bool match_call(const TreeSpec& spec, PyObject* const* values, std::size_t count, LeafBuffer& leaves, bool abstract,
                const DynamicRule* rule, const KeptValues* kept_values = nullptr);

}  // namespace partax
