// A spec as plain Python data with paths, from which Python builds messages.
#pragma once

#include "base/python_api.h"
#include "pytree/tree_spec.h"

namespace partax {

// Of each value (value,), or () if the field is absent, or None if the value is gone.
Ref static_data(std::vector<StaticValue>::const_iterator first, std::vector<StaticValue>::const_iterator end);
// (nodes, their keys) from which partax._pytree.spec_data makes paths.
Ref node_names(const TreeSpec& spec, const std::vector<Ref>& child_keys);
// (nodes, static values, paths) as it returns them. `roots`: a tuple with the name of the tree, or with one for each
// value of a call.
Ref spec_data(const TreeSpec& spec, const Ref& roots);
// The tuple of one root.
Ref root_of(const std::string& name);

// The path of a static value.
std::string static_path(const TreeSpec& spec, const Ref& roots, std::size_t index);
// Runs what looks at the static values of a spec, whose errors have the index of one as their origin; `roots()` is
// asked for after one.
template <typename Roots, typename Body>
auto with_static_path(const TreeSpec& spec, Roots&& roots, Body&& body) {
  try {
    return body();
  } catch (const WalkError& error) {
    error.raise(static_path(spec, roots(), error.origin()));
    throw PythonError{};
  }
}

}  // namespace partax
