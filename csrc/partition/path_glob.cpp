#include "partition/path_glob.h"

#include <algorithm>

namespace partax {
namespace {

constexpr std::uint64_t bit(std::size_t position) noexcept { return std::uint64_t{1} << position; }

bool is_digits(const std::string& text) noexcept {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

bool PathGlob::Segment::matches(std::string_view text) const noexcept {
  const std::string& first = pieces.front();
  if (pieces.size() == 1) return text == first;
  const std::string& last = pieces.back();
  if (text.size() < first.size() + last.size()) return false;
  if (text.substr(0, first.size()) != first || text.substr(text.size() - last.size()) != last) return false;
  std::string_view middle = text.substr(first.size(), text.size() - first.size() - last.size());
  for (std::size_t i = 1; i + 1 < pieces.size(); ++i) {
    const std::size_t at = middle.find(pieces[i]);
    if (at == std::string_view::npos) return false;
    middle.remove_prefix(at + pieces[i].size());
  }
  return true;
}

PathGlob::PathGlob(PyObject* alternatives) {
  for (PyObject* segments : Items(alternatives)) {
    Alternative& alternative = alternatives_.emplace_back();
    for (PyObject* pieces : Items(segments)) {
      Segment& segment = alternative.emplace_back();
      segment.any_depth = pieces == Py_None;
      if (segment.any_depth) continue;
      for (PyObject* piece : Items(pieces)) segment.pieces.push_back(exact_text(piece));
    }
  }
}

std::uint64_t PathGlob::closed(const Alternative& alternative, std::uint64_t positions) noexcept {
  for (std::size_t p = 0; p < alternative.size(); ++p) {
    if ((positions & bit(p)) != 0 && alternative[p].any_depth) positions |= bit(p + 1);
  }
  return positions;
}

PathGlob::States PathGlob::start() const {
  States states(alternatives_.size());
  for (std::size_t a = 0; a < states.size(); ++a) states[a] = closed(alternatives_[a], 1);
  return states;
}

PathGlob::States PathGlob::step(const States& states, std::string_view segment) const {
  States next(states.size(), 0);
  for (std::size_t a = 0; a < states.size(); ++a) {
    const Alternative& alternative = alternatives_[a];
    for (std::size_t p = 0; p < alternative.size(); ++p) {
      if ((states[a] & bit(p)) == 0) continue;
      if (alternative[p].any_depth) {
        next[a] |= bit(p);
      } else if (alternative[p].matches(segment)) {
        next[a] |= bit(p + 1);
      }
    }
    next[a] = closed(alternative, next[a]);
  }
  return next;
}

bool PathGlob::accepts(const States& states) const noexcept {
  for (std::size_t a = 0; a < states.size(); ++a) {
    if ((states[a] & bit(alternatives_[a].size())) != 0) return true;
  }
  return false;
}

// Whether the rest of the alternative, from a position on, may be nothing.
bool PathGlob::ends(const Alternative& alternative, std::size_t position) noexcept {
  return std::all_of(alternative.begin() + static_cast<std::ptrdiff_t>(position), alternative.end(),
                     [](const Segment& segment) { return segment.any_depth; });
}

bool PathGlob::takes(const States& states, std::string_view segment) const noexcept {
  for (std::size_t a = 0; a < states.size(); ++a) {
    const Alternative& alternative = alternatives_[a];
    for (std::size_t p = 0; p < alternative.size(); ++p) {
      if ((states[a] & bit(p)) == 0 || !ends(alternative, p + 1)) continue;
      if (alternative[p].any_depth || alternative[p].matches(segment)) return true;
    }
  }
  return false;
}

PathGlob::Indices PathGlob::indices(const States& states) const {
  Indices result;
  for (std::size_t a = 0; a < states.size(); ++a) {
    const Alternative& alternative = alternatives_[a];
    for (std::size_t p = 0; p < alternative.size(); ++p) {
      if ((states[a] & bit(p)) == 0 || !ends(alternative, p + 1)) continue;
      const std::vector<std::string>& pieces = alternative[p].pieces;
      if (alternative[p].any_depth || (pieces.size() == 2 && pieces[0].empty() && pieces[1].empty())) {
        result.taken = true;
      } else if (std::all_of(pieces.begin(), pieces.end(), is_digits)) {
        const std::string& number = pieces[0];
        if (pieces.size() > 1) {
          result.alike = false;
        } else if (!number.empty() && number.size() < 18 && (number[0] != '0' || number.size() == 1)) {
          result.named.push_back(std::stoull(number));
        }
      }
    }
  }
  std::sort(result.named.begin(), result.named.end());
  return result;
}

}  // namespace partax
