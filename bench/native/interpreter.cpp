#include "interpreter.h"

#include <benchmark/benchmark.h>

#include <stdexcept>

#include "base/error_path.h"

extern "C" PyObject* PyInit__core();  // NOLINT(bugprone-reserved-identifier): the name that Python wants

namespace py = pybind11;

namespace partax::bench {
namespace {

py::scoped_interpreter start_python() {
  PyImport_AppendInittab("_core", &PyInit__core);  // NOLINT(bugprone-reserved-identifier)
  PyConfig config;
  PyConfig_InitPythonConfig(&config);
  config.parse_argv = 0;
  config.install_signal_handlers = 0;  // ctrl-C ends the program, though Python code runs rarely
  // As if that executable ran: Python then finds its virtual environment.
  PyConfig_SetBytesString(&config, &config.program_name, PARTAX_PYTHON_EXECUTABLE);
  return py::scoped_interpreter(&config, 0, nullptr, false);
}

py::module_ import(const char* name) {
  try {
    return py::module_::import(name);
  } catch (py::error_already_set& error) {
    throw std::runtime_error("importing " + std::string(name) + " failed: " + error.what() +
                             "\nExpected jax, equinox, optax, optree and partax in the environment of " +
                             PARTAX_PYTHON_EXECUTABLE + "; run `" + PARTAX_PYTHON_EXECUTABLE +
                             " -m pip install '.[bench]'` in partax's repository.");
  }
}

void import_partax() {
  const py::module_ sys = import("sys");
  sys.attr("path").attr("insert")(0, PARTAX_PYTHON_LAYER);
  sys.attr("modules")["partax._core"] = import("_core");
  import("partax");
}

}  // namespace

Interpreter::Interpreter() : python_(start_python()) {
  for (const char* name : {"jax", "equinox", "optax", "optree"}) {
    benchmark::AddCustomContext(name, py::str(import(name).attr("__version__")));
  }
  import_partax();
  benchmark::AddCustomContext("python", Py_GetVersion());
  PyGC_Disable();
}

std::string current_error() {
  try {
    throw;
  } catch (const WalkError& error) {
    error.raise("tree");
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (...) {
    set_python_error();
  }
  const Ref exception = take_exception();
  return py::cast<std::string>(py::repr(exception.get()));
}

}  // namespace partax::bench
