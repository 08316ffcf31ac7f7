// The parameters of a wrapped function, and the one form that every way of passing the same arguments is brought into.
#pragma once

#include <memory>

#include "python_api.h"

namespace partax {

// Which parameters have a value. Without an allocation for the first 64.
class GivenParameters {
 public:
  bool has(std::size_t i) const noexcept {
    if (i < kWord) return (first_ >> i & 1) != 0;
    return i / kWord <= more_.size() && (more_[i / kWord - 1] >> i % kWord & 1) != 0;
  }
  void add(std::size_t i) {
    if (i < kWord) {
      first_ |= std::uint64_t{1} << i;
      return;
    }
    if (i / kWord > more_.size()) more_.resize(i / kWord);
    more_[i / kWord - 1] |= std::uint64_t{1} << i % kWord;
  }
  void add_first(std::size_t count) {
    if (count < kWord) {
      first_ = (std::uint64_t{1} << count) - 1;
    } else {
      first_ = ~std::uint64_t{0};
      for (std::size_t i = kWord; i < count; ++i) add(i);
    }
  }
  bool operator==(const GivenParameters& other) const { return first_ == other.first_ && more_ == other.more_; }
  std::size_t hash() const noexcept {
    std::size_t seed = first_ * 0x9E3779B97F4A7C15ull;
    for (const std::uint64_t word : more_) seed = (seed ^ word) * 0x9E3779B97F4A7C15ull;
    return seed;
  }

 private:
  static constexpr std::size_t kWord = 64;
  std::uint64_t first_ = 0;
  std::vector<std::uint64_t> more_;
};

// Which arguments a call gave: with the values, all that tells one way of calling from another.
struct CallShape {
  GivenParameters given;
  std::uint32_t num_extra = 0;  // values taken by *args
  std::vector<Ref> keywords;    // names of the values taken by **kwargs, in an order that does not depend on the call
  bool operator==(const CallShape& other) const;
  std::size_t hash() const;
};

// Parameters by which a callable is really called. Where nobody knows them it has none and takes everything by *args
// and
// **kwargs. What these take has the names that the callable shows (`functools.wraps`), if they are others.
struct Parameters {
  std::string function;    // its name, for messages
  std::vector<Ref> names;  // interned; positional ones first, then keyword-only
  std::vector<bool> optional;
  std::size_t num_positional_only = 0;
  std::size_t num_positional = 0;
  bool var_positional = true;
  bool var_keyword = true;
  std::string var_positional_name = "args";
  std::string all_positional;  // what options call all values in *args; empty if another one has the name
  std::string all_keyword;     // the same of **kwargs
  std::vector<std::string> shown_positional;  // of the values in *args, from the first; empty where it has no name
  std::vector<Ref> shown_named;               // of the values in **kwargs, in order
  std::string shown_var_positional, shown_var_keyword;  // of those that are neither
  enum class Defaults : std::uint8_t { kUnknown, kOfFunction, kOfCallMethod };
  Defaults defaults = Defaults::kUnknown;  // where the defaults are read at each call

  std::size_t index_of(PyObject* name) const;        // names.size() if there is none
  std::size_t shown_index_of(PyObject* name) const;  // shown_named.size() if there is none
};

// The arguments of one call in parameter order: [callable], given parameters, *args, **kwargs by name.
class BoundCall {
 public:
  // `first` (may be null) is the wrapped callable as a traced tree, `self` (may be null) the bound instance.
  BoundCall(const Parameters& parameters, PyObject* function, PyObject* first, PyObject* self, PyObject* const* args,
            std::size_t num_args, PyObject* keyword_names);
  BoundCall(const BoundCall&) = delete;
  BoundCall& operator=(const BoundCall&) = delete;

  PyObject* const* values() const noexcept { return values_; }
  std::size_t size() const noexcept { return size_; }
  const CallShape& shape() const noexcept { return shape_; }
  bool has_callable() const noexcept { return has_callable_; }

 private:
  void bind(const Parameters& parameters, PyObject* function, PyObject* first, PyObject* self, PyObject* const* args,
            std::size_t num_args, PyObject* keyword_names);

  static constexpr std::size_t kInline = 16;
  PyObject* inline_[kInline];
  std::vector<PyObject*> heap_;
  std::vector<Ref> owned_;  // defaults
  PyObject* const* values_ = inline_;
  std::size_t size_ = 0;
  CallShape shape_;
  bool has_callable_ = false;
};

// The root of each value's path in messages: `model`, `args[0]`, `kwargs` by their own names.
std::vector<std::string> value_names(const Parameters& parameters, const CallShape& shape, bool has_callable);

// By which names options (`donate`, `trace`) may mean each value: `args` means each of `args[0]`, `args[1]`. The
// callable itself has none.
using OptionNames = std::vector<std::vector<std::string>>;
OptionNames option_names(const Parameters& parameters, const CallShape& shape, bool has_callable);

// Calls `callable` with rebuilt values in the form that `shape` describes.
Ref call_with(const Parameters& parameters, const CallShape& shape, PyObject* callable, const std::vector<Ref>& values,
              std::size_t first_value);

}  // namespace partax
