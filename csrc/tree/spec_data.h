// A spec as plain Python data with paths, of which Python makes texts.
#pragma once

#include "base/python_api.h"
#include "tree/tree_spec.h"

namespace partax {

// (nodes, static values, paths) as partax._pytree.spec_data takes it. `roots`: a tuple with the name of the tree, or
// with one for each value of a call. Runs the `repr` of keys.
Ref spec_data(const TreeSpec& spec, const Ref& roots);
// The tuple of one root.
Ref root_of(const std::string& name);

// The path of a static value.
std::string static_path(const TreeSpec& spec, const Ref& roots, std::size_t index);
// Raises an error whose origin is the index of a static value.
[[noreturn]] void raise_at_static(const WalkError& error, const TreeSpec& spec, const Ref& roots);

}  // namespace partax
