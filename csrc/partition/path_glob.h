// A pattern over the segments of a path, matched segment by segment on the way down a tree.
#pragma once

#include <string_view>

#include "base/python_api.h"

namespace partax {

class PathGlob {
 public:
  // For each alternative the set of its positions that the path so far may stand at.
  using States = std::vector<std::uint64_t>;

  // `alternatives` as partax._pytree.filters makes them: a tuple of tuples of segments; a segment is None for `**`,
  // else a tuple of the literal pieces between its `*`. There are at most 63.
  explicit PathGlob(PyObject* alternatives);

  States start() const;
  States step(const States& states, std::string_view segment) const;
  bool accepts(const States& states) const noexcept;
  // accepts(step(states, segment)), in one go.
  bool takes(const States& states, std::string_view segment) const noexcept;

  // What becomes of segments that are indices: all alike, but for some that are named.
  struct Indices {
    bool alike = true;  // false: each has to be looked at
    bool taken = false;
    std::vector<std::size_t> named;  // in order
  };
  Indices indices(const States& states) const;

 private:
  struct Segment {
    bool any_depth = false;
    std::vector<std::string> pieces;
    bool matches(std::string_view text) const noexcept;
  };
  using Alternative = std::vector<Segment>;

  static std::uint64_t closed(const Alternative& alternative, std::uint64_t positions) noexcept;
  static bool ends(const Alternative& alternative, std::size_t position) noexcept;

  std::vector<Alternative> alternatives_;
};

}  // namespace partax
