// The path of the object that is being walked, as text; made only as far as somebody asks for it.
#pragma once

#include <string>
#include <vector>

#include "python_api.h"
#include "walk_observer.h"

namespace partax {

class PathText {
 public:
  void push(const Step& step);
  void pop();
  std::size_t depth() const noexcept { return depth_; }
  // The step that led to the level below `level`.
  const Step& step(std::size_t level) const noexcept { return levels_[level].step; }

  // The segment from `level` to the next, without punctuation: as jax.tree_util.keystr(simple=True) writes it.
  const std::string& segment(std::size_t level);
  // The whole path: in the form of keystr, or segments joined by a separator (always the same one) or by a slash.
  const std::string& keystr();
  const std::string& joined(const std::string& separator) { return join(joined_, separator); }
  const std::string& slashed() { return join(slashed_, "/"); }

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
  const std::string& join(Text& text, const std::string& separator);
  void append_keystr(std::size_t level, std::string& text);

  std::vector<Level> levels_;
  std::size_t depth_ = 0;
  Text keystr_, joined_, slashed_;
  std::size_t written_ = 0;  // no text covers more levels
};

}  // namespace partax
