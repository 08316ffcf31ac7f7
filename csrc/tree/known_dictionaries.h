// What the dictionaries of a tree held when a spec's static values were found in them: the same, as long as each is
// marked.
#pragma once

#include <vector>

#include "base/dictionary_mark.h"

namespace partax {

struct TreeSpec;

class KnownDictionaries {
 public:
  // Whether an object is the dictionary that is known of a node, unchanged: its static values are identical, but for
  // those that may change in themselves. `owner` as of DictionaryMark.
  bool has(std::size_t node, PyObject* object, PyObject* owner) const noexcept {
    return has_room() && known_[node].mark.is_on(object, owner);
  }
  // Whether these are as they were: each is asked for, `is_still(index, value)`. It must not run Python.
  template <typename IsStill>
  bool are_still(std::size_t node, IsStill&& is_still) const {
    for (std::size_t i = known_[node].first_changing; i < known_[node + 1].first_changing; ++i) {
      if (!is_still(changing_[i].index, changing_[i].value)) return false;
    }
    return true;
  }
  // Where the children of a node are, and are to be written, in the order of the spec. Borrowed from its dictionary, so
  // good until any Python runs.
  PyObject** children(std::size_t node) noexcept { return children_.data() + known_[node].first_child; }
  // The same of a static value that may change in itself; false where none is expected, as in no node that is
  // `in_slots`.
  bool set_changing(std::size_t node, std::size_t index, PyObject* value) noexcept;
  // To be called before these are written, which makes them those of no dictionary.
  void forget(std::size_t node) noexcept { known_[node].mark.forget(); }
  // They are those of this dictionary. Whether the children were the same where this was called last is
  // `are_as_before`.
  void remember(std::size_t node, PyObject* dict, PyObject* owner, bool are_as_before) noexcept {
    known_[node].mark.put(dict, owner, are_as_before);
  }

  // None is known before there is room.
  bool has_room() const noexcept { return !known_.empty(); }
  void make_room(const TreeSpec& spec);

 private:
  struct Known {
    DictionaryMark mark;
    std::uint32_t first_child = 0, first_changing = 0;
  };
  // Such as a function, whose parts may be set.
  struct Changing {
    std::uint32_t index;
    PyObject* value;
  };

  std::vector<Known> known_;  // by node, and one at the end
  std::vector<PyObject*> children_;
  std::vector<Changing> changing_;
};

}  // namespace partax
