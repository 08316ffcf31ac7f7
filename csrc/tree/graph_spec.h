// Which objects a tree has that are known by identity, such as nnx's modules and variables: read beside a spec.
#pragma once

#include "base/python_api.h"

namespace partax {

// Makes the Python type whose instances are such specs, and gives it.
Ref register_graph_spec_type();

}  // namespace partax
