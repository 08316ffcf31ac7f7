// The embedded Python, with this program as its partax._core.
#pragma once

#include <pybind11/embed.h>

#include <string>

#include "base/python_api.h"

namespace partax::bench {

// Starts the Python that CMake found, with its site-packages, and imports jax, equinox, optax, optree and partax.
// Python's cycle collector is off while it lives, so that no benchmark pays for the garbage of another.
class Interpreter {
 public:
  // Raises std::runtime_error that says what to install.
  Interpreter();

 private:
  pybind11::scoped_interpreter python_;
};

// The message of the C++ or Python exception in flight; clears it.
std::string current_error();

}  // namespace partax::bench
