// The path of the object that is being walked, as text; made only as far as somebody asks for it.
#pragma once

#include <string>
#include <vector>

#include "base/python_api.h"
#include "tree/walk_observer.h"

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
  const std::string& key(const std::string* separator) { return extended(key_, separator); }
  const std::string& slashed() {
    static const std::string slash = "/";
    return extended(slashed_, &slash);
  }

 private:
  struct Level {
    Step step;
    std::string segment;
    bool has_segment = false;
    Ref entries;  // of a registered parent: its (key, child) pairs, shared by its children
  };
  // A path under construction: how long it was at each level that it covers.
  struct Text {
    std::string text;
    std::vector<std::size_t> ends;
  };

  PyObject* key_entry(std::size_t level);
  // The text as far as the path goes now; without a separator in the form of keystr.
  const std::string& extended(Text& text, const std::string* separator);
  void append_keystr(std::size_t level, std::string& text);

  std::vector<Level> levels_;
  std::size_t depth_ = 0;
  Text key_, slashed_;
  std::size_t written_ = 0;  // no text covers more levels
};

}  // namespace partax
