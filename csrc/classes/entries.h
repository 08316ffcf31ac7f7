// The entries of an object whose registered functions read a dictionary of it, as its layout finds them.
#pragma once

#include <optional>
#include <vector>

#include "base/python_api.h"
#include "classes/layout.h"

namespace partax {

struct Entries {
  std::size_t num_children = 0;
  std::vector<Ref> keys;     // those of the children first
  std::vector<Ref> statics;  // the values in the static slots, and of the static entries
};

// What the layout finds where the registered functions gave these children (a list or tuple) and aux data; nothing
// where that is not the same, object by object. Runs no Python of the object's.
std::optional<Entries> read_entries(const Layout& layout, PyObject* object, PyObject* children, PyObject* aux);

}  // namespace partax
