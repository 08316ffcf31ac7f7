// A spec as text.
#pragma once

#include "python_api.h"
#include "tree_spec.h"

namespace partax {

// The tree as Python would print it, with `*` for dynamic leaves. Runs the repr of static values. Raises PythonError.
std::string tree_text(const TreeSpec& spec);

}  // namespace partax
