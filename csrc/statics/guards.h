// The guards of a program: all that its trace can read beside the arrays, written down when the trace begins. Functions
// made anew get the program only if the same would be written down now.
#pragma once

#include <functional>

#include "base/python_api.h"

namespace partax {

// partax._guards.walk writes them down, as a list of checks of one value each: what must be true of the value, and
// how those that come next are found in it. Here the checks are made. The two enumerations are known by number there.
class Guards {
 public:
  enum Expected : std::uint8_t {
    kAnything,
    kNew,  // an object that was not met before
    kMet,  // the one that was met as that number
    kAbsent,
    kEqual,    // of the same type and bits
    kObject,   // that one, held weakly
    kCode,     // the same code
    kAddress,  // the object that was there, which another check keeps alive
  };
  enum Parts : std::uint8_t {
    kNone,
    kItems,     // the type and the items of a container, or the function and the object of a method
    kState,     // the type, the built-in content, and names and values of attributes
    kFunction,  // code, cells, defaults, attributes, names, and the globals that are named, or the dictionary of them
    kClass,     // the metaclass, both names, the bases in their order, jax's registration, names and values of entries
    kAsked,     // the type, and what a function finds in an instance of it, as a tuple
    kVersion,   // of a class: a number that changes with its entries and those of its bases; nothing if it is as given
  };
  // What the walk begins at, by number.
  using Roots = std::function<Ref(std::size_t)>;

  // Writes down what can be read of these values, the arguments of `function` if it is given. That is the last root
  // where it may hold an object that one of them leads to, as in `argument is held`.
  static std::shared_ptr<Guards> of(const std::vector<Ref>& roots, PyObject* function = nullptr);
  // The parts of a value as a tuple, with `absent` for one that is not there.
  static Ref parts_of(PyObject* value, Parts parts, PyObject* argument, PyObject* absent);

  // Whether nothing was out of reach, and no trace has begun since with anything else.
  bool proven() const noexcept { return unproven_.empty(); }
  void disprove(const std::string& reason) {
    if (proven()) unproven_ = reason;
  }
  // What is not proven of functions among the roots, which count as the same only as the same objects; empty if all are
  // proven.
  const std::string& of_same_objects() const noexcept { return of_same_objects_; }
  // Whether the function is a root.
  bool has_function() const noexcept { return has_function_; }
  // Whether arrays are among it, which nobody may keep for a callable that is gone.
  bool holds_arrays() const noexcept { return holds_arrays_; }

  // For what was made anew: whether the same can be read of these roots now; if not, and `difference` is given, what is
  // not as it was. `loosely`: an int may have become the equal float, as 100 becomes 100.0.
  bool match(const Roots& roots, std::string* difference = nullptr, bool loosely = false) const;

 private:
  struct Check {
    Expected expected;
    Parts parts;
    Ref object;  // that is expected, or its number
    Ref argument;
    std::size_t count;  // of the parts
  };
  bool all(const Roots& roots, std::size_t& at, bool loosely) const;

  std::vector<Check> checks_;
  std::size_t num_roots_ = 0;
  Ref place_;             // (number of a check) -> what it is, as text
  Ref registered_;        // how much was registered with abstract classes
  std::string unproven_;  // as "self.lr through closure cell 'self'"; empty if all is proven
  std::string of_same_objects_;
  bool has_function_ = false, holds_arrays_ = false;
};

// While one is there, callables that were made anew count as equal to known ones of the same form, and it notes that
// there were any: then the guards decide. Where there is none, such callables are not equal.
class MadeAnew {
 public:
  MadeAnew() noexcept { innermost_ = this; }
  ~MadeAnew() {
    innermost_ = outer_;
    if (any_ && outer_ != nullptr) outer_->any_ = true;
  }
  MadeAnew(const MadeAnew&) = delete;
  MadeAnew& operator=(const MadeAnew&) = delete;
  bool any() const noexcept { return any_; }
  // Notes a callable made anew; whether anybody wants to know.
  static bool note() noexcept {
    if (innermost_ != nullptr) innermost_->any_ = true;
    return innermost_ != nullptr;
  }

 private:
  static thread_local MadeAnew* innermost_;
  MadeAnew* outer_ = innermost_;
  bool any_ = false;
};

}  // namespace partax
