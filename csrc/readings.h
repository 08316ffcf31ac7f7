// All that the code of a callable can read, written down when a trace of it begins. A callable made anew is the same
// only if the same would be written down of it now.
#pragma once

#include <memory>
#include <string>

#include "python_api.h"

namespace partax {

// What is written down, in one order; what cannot be proven unchanged ends it.
//   constants     values of immutable built-in types, dtypes, shardings, ...: compared by value
//   objects       arrays, classes, instances, modules: by identity; of users' classes and instances also their state
//   containers    exact lists, dicts, sets and tuples, by what they hold now
//   functions     code, closure cells, defaults, attributes, and the globals that the code and code inside it names;
//                 those that Python or an installed library defines are constants
// Each callable, class and instance is written down where it is met first.
class Readings {
 public:
  // `bare`: without the function's defaults, which are arguments of each call.
  static std::shared_ptr<Readings> of(PyObject* callable, bool bare);

  // Whether nothing was out of reach, and no trace has begun since with anything else.
  bool proven() const noexcept { return unproven_.empty(); }
  void disprove(const std::string& reason) {
    if (proven()) unproven_ = reason;
  }
  // What is not proven, as "self.lr through closure cell 'self'".
  const std::string& unproven() const noexcept { return unproven_; }
  // Whether arrays are among it, which nobody may keep for a callable that is gone.
  bool holds_arrays() const noexcept { return holds_arrays_; }

  // Whether `callable` reads the same now; if not, and `difference` is given, the first thing that it reads otherwise.
  bool match(PyObject* callable, std::string* difference = nullptr) const;

 private:
  friend class ReadingWalk;
  struct Item {
    enum Kind : std::uint8_t { kMark, kConstant, kObject, kCode } kind;
    std::size_t number;  // kMark
    Ref object;          // weak of kObject
    Ref names;           // kCode: what it names
  };
  std::vector<Item> items_;
  std::string unproven_;
  bool holds_arrays_ = false;
  bool bare_ = false;
};

}  // namespace partax
