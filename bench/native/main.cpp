// Microbenchmarks of partax's native stages, in nanoseconds per node of the tree.
//
//   export pybind11_DIR=$(python -m pybind11 --cmakedir)
//   cmake -S . -B build/bench -DPARTAX_BUILD_BENCH=ON -DPython_EXECUTABLE=$(which python)
//   cmake --build build/bench --target partax_bench
//   build/bench/bench/native/partax_bench [--benchmark_filter=flatten] [--benchmark_repetitions=5]
//
// Options are those of Google Benchmark.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <stdexcept>

#include "interpreter.h"
#include "peers.h"
#include "stages.h"
#include "table_reporter.h"
#include "timing.h"
#include "trees.h"

namespace partax::bench {
namespace {

// A format for machines is left to Google Benchmark.
bool wants_own_format(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--benchmark_format=", 19) == 0 && std::strcmp(argv[i] + 19, "console") != 0) return true;
  }
  return false;
}

// Needs a running interpreter.
void run_benchmarks(bool own_format) {
  const std::vector<Tree> trees = make_trees();
  Peers peers;
  peers.register_flatten(trees);
  register_stages(trees);
  if (own_format) {
    benchmark::RunSpecifiedBenchmarks();
  } else {
    TableReporter reporter(isatty(STDOUT_FILENO) != 0 ? TableReporter::OO_ColorTabular : TableReporter::OO_Tabular);
    benchmark::RunSpecifiedBenchmarks(&reporter);
  }
  benchmark::ClearRegisteredBenchmarks();
}

int run(bool own_format) {
  try {
    const Interpreter python;
    try {
      run_benchmarks(own_format);
    } catch (...) {
      throw std::runtime_error(current_error());
    }
  } catch (const std::exception& error) {
    std::cerr << "partax_bench: " << error.what() << "\n";
    return 1;
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace partax::bench

int main(int argc, char** argv) {
  const bool own_format = partax::bench::wants_own_format(argc, argv);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  setenv("JAX_PLATFORMS", "cpu", 0);
  return partax::bench::run(own_format);
}
