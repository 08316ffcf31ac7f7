// The path of the object that is being walked, as text; made only as far as somebody asks for it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/python_api.h"
#include "tree/flatten.h"

namespace partax {

class PathText {
 public:
  void push(const Step& step);
  void pop();
  // The step that led to the level below `level`.
  const Step& step(std::size_t level) const noexcept { return levels_[level].step; }

  // The segment from `level` to the next, without punctuation: as jax.tree_util.keystr(simple=True) writes it.
  const std::string& segment(std::size_t level);
  // The whole path: in the form of keystr or, with a separator (always the same one), joined by it; and by a slash.
  const std::string& key(const std::string* separator);
  std::string slashed();

 private:
  struct Level {
    Step step;
    std::optional<std::string> segment;
    Ref entries;  // of a registered parent: the keys of its children
  };

  PyObject* key_entry(std::size_t level);
  void append_keystr(std::size_t level, std::string& text);

  std::vector<Level> levels_;
  std::size_t depth_ = 0;
  std::string key_;
  std::vector<std::size_t> ends_;  // how long that was at each level that it covers
};

}  // namespace partax
