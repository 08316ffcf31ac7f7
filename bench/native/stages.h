// partax's stages, each alone.
#pragma once

#include <vector>

#include "trees.h"

namespace partax::bench {

// Registers "<stage>/<tree>" for every stage; `trees` has to outlive the benchmarks.
void register_stages(const std::vector<Tree>& trees);

}  // namespace partax::bench
