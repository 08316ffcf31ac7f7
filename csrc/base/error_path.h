// Where in the user's argument something is, and errors that say so: "model.layers[0].weight".
#pragma once

#include "base/python_api.h"

namespace partax {

// An error found while walking a tree. Segments are added innermost first as it unwinds.
class WalkError {
 public:
  // A fault that partax found: raised as `type` with "<path>: <message>", chained to the exception set now, if any.
  static WalkError diagnosed(PyObject* type, std::string message);
  // An exception of user code, set now: it keeps its type and gets a note with the path and `doing`.
  static WalkError from_user_code(std::string doing);

  void prepend(std::string segment) { segments_.push_back(std::move(segment)); }
  // Gives the Python exception this attribute, which is True: by it Python code tells it from others of its type.
  void mark(const char* attribute) { mark_ = attribute; }
  // Which value of a call, or which static value of a spec, the path starts at.
  void set_origin(std::size_t index) { origin_ = index; }
  std::size_t origin() const noexcept { return origin_; }
  bool must_pass() const noexcept { return exception_ && partax::must_pass(exception_.get()); }
  // Sets the Python exception; `root` is the name of the walked object.
  void raise(const std::string& root) const;

 private:
  Ref type_;
  Ref exception_;
  std::string message_;
  const char* mark_ = nullptr;
  std::vector<std::string> segments_;
  std::size_t origin_ = 0;
};

// Runs what may throw a WalkError below the object that is called `root`.
template <typename Body>
auto with_path(const char* root, Body&& body) {
  try {
    return body();
  } catch (const WalkError& error) {
    error.raise(root);
    throw PythonError{};
  }
}

// Runs `body`; `tell(error)` adds the place to a WalkError.
template <typename Tell, typename Body>
auto annotate_error(Tell&& tell, Body&& body) {
  try {
    return body();
  } catch (WalkError& error) {
    tell(error);
    throw;
  }
}
// One step further down; `segment()` is that step.
template <typename Segment, typename Body>
auto below(Segment&& segment, Body&& body) {
  return annotate_error([&](WalkError& error) { error.prepend(segment()); }, body);
}
template <typename Body>
auto of_value(std::size_t index, Body&& body) {
  return annotate_error([&](WalkError& error) { error.set_origin(index); }, body);
}

// Runs what reads a tree, or does something else with it: an error without a place gets one.
template <typename Body>
auto reading(Body&& body, const char* doing = "reading") {
  try {
    return body();
  } catch (const PythonError&) {
    throw WalkError::from_user_code(doing);
  }
}

// The truth of `callable(argument)`; `doing` is for the note on an exception.
bool is_truthy(PyObject* callable, PyObject* argument, const char* doing);

inline std::string attribute_segment(PyObject* name) { return "." + exact_text(name); }
inline std::string index_segment(std::size_t index) { return "[" + std::to_string(index) + "]"; }
std::string key_segment(PyObject* key);
std::string child_segment(PyObject* node, std::size_t child);

}  // namespace partax
