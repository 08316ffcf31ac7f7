// All that the code of a callable can read, written down when a trace of it begins. A callable made anew is the same
// only if the same would be written down of it now.
#pragma once

#include <memory>
#include <string>

#include "base/python_api.h"

namespace partax {

// partax._statics.code_reads writes it down, as a list of checks of one value each: what must be true of the value, and
// how those that come next are found in it. Here the checks are made. The two enumerations are known by number there.
class Readings {
 public:
  enum Expected : std::uint8_t {
    kAnything,
    kThere,  // there is one
    kNew,    // an object that was not met before
    kMet,    // the one that was met as that number
    kAbsent,
    kEqual,    // by the rules of static values
    kObject,   // that one, held weakly
    kCode,     // the same code
    kAddress,  // the object that was there, which another check keeps alive
  };
  enum Parts : std::uint8_t {
    kNone,
    kType,      // the type alone
    kItems,     // the type and the items of a container, or the function and the object of a method
    kState,     // the type, the built-in content, and names and values of attributes
    kFunction,  // code, cells, defaults, attributes, names, and the globals that are named, or the dictionary of them
    kClass,     // the metaclass, both names, the bases in their order, and names and values of entries
    kAsked,     // the type, and what a function of Python finds in an instance of it, as a tuple
  };

  // `bare`: without the function's defaults, which are arguments of each call.
  static std::shared_ptr<Readings> of(PyObject* callable, bool bare);
  // The parts of a value as a tuple, with `absent` for one that is not there.
  static Ref parts_of(PyObject* value, Parts parts, PyObject* argument, PyObject* absent);

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
  struct Check {
    Expected expected;
    Parts parts;
    Ref object;  // that is expected, or its number
    Ref argument;
    std::size_t count;  // of the parts
  };
  bool all(PyObject* callable, std::size_t& at) const;

  std::vector<Check> checks_;
  Ref place_;  // (number of a check) -> what it is, as text
  std::string unproven_;
  bool holds_arrays_ = false;
};

}  // namespace partax
