// What a Flattener tells whoever follows its walk.
#pragma once

#include <optional>

#include "base/python_api.h"
#include "classes/type_table.h"

namespace partax {

// How one child hangs on its parent. All pointers are borrowed and live as long as the child is walked.
struct Step {
  Kind kind = Kind::kTuple;        // of the parent
  const TypeInfo* info = nullptr;  // of the parent
  PyObject* parent = nullptr;
  std::size_t index = 0;
  PyObject* key = nullptr;  // of a dict's child

  // What tells the child from others of its parent, and so stands for it in paths.
  enum class By : std::uint8_t { kIndex, kName, kKey, kFunctions };
  By by() const noexcept {
    if (is_dict(kind)) return By::kKey;
    if (is_named_by_functions(kind)) return By::kFunctions;
    return index < info->child_names.size() ? By::kName : By::kIndex;
  }
  PyObject* name() const noexcept { return info->child_names[index].get(); }
};

class WalkObserver {
 public:
  virtual ~WalkObserver() = default;
  // An object is met, where `step` leads (null for the root); true makes a leaf of it.
  virtual bool enter(const Step* step, PyObject* object) = 0;
  // The object met last is a leaf, and so left again; true makes it a dynamic one.
  virtual bool leaf(PyObject* object) = 0;
  // The same of a leaf below the node that was met last, which is not met itself: its answer where its step does not
  // matter, so that long rows of leaves are quick. It may run Python.
  virtual std::optional<bool> known_leaf(PyObject* leaf) = 0;
  // The walk below the node that was met last, of those not left, is over.
  virtual void leave() = 0;
};

}  // namespace partax
