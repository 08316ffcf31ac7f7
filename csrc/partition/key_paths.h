// The paths of leaves as jax writes them: tuples of keys.
#pragma once

#include <optional>

#include "partition/path_text.h"
#include "tree/walk_observer.h"

namespace partax {

class KeyPaths final : public WalkObserver {
 public:
  bool enter(const Step* step, PyObject* object) override;
  bool leaf(PyObject* object) override;
  std::optional<bool> known_leaf(PyObject*) override { return std::nullopt; }
  void leave() override;

  // Of the leaf at `index`; borrowed.
  PyObject* path(std::size_t index) const { return paths_[index].get(); }

 private:
  Ref key(const Step& step);

  PathText path_;
  std::vector<Ref> keys_;  // of the object met last and those above it, but for the root
  std::vector<Ref> paths_;
};

}  // namespace partax
