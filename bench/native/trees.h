// The trees that are timed: shapes that users have, and extremes.
#pragma once

#include <string>
#include <vector>

#include "base/python_api.h"
#include "pytree/leaf_buffer.h"
#include "pytree/tree_spec.h"

namespace partax::bench {

struct Tree {
  std::string name;
  Ref object;
  Ref copy;  // built anew: the same static part, in other objects wherever Python does not share them
  std::size_t nodes = 0;
  std::size_t leaves = 0;
  std::size_t statics = 0;  // static leaves, static fields, keys and aux data
  bool has_modules = false;
};

std::vector<Tree> make_trees();

// The loose spec of `object`, which `rebuild` can use too.
TreeSpec spec_of(PyObject* object, LeafBuffer& leaves);

}  // namespace partax::bench
