// How a stage is timed.
#pragma once

#include <benchmark/benchmark.h>
#include <time.h>

#include <stdexcept>
#include <string>

#include "interpreter.h"

namespace partax::bench {

// Benchmarks that failed; not zero makes the program fail.
inline int failures = 0;

inline void expect(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(std::string("expected that ") + what);
}

// Runs `body`, which is one benchmark: an exception of C++ or Python ends it and is reported.
template <typename Body>
void reported(benchmark::State& state, Body&& body) {
  try {
    body();
  } catch (...) {
    ++failures;
    state.SkipWithError(current_error().c_str());
  }
}

// Time that this thread has computed, in nanoseconds: other programs on the machine do not count.
inline double thread_time() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e9 * static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec);
}

// Repeats `stage`, which handles `nodes` nodes, as often as `state` asks for.
template <typename Stage>
void time_per_node(benchmark::State& state, std::size_t nodes, Stage&& stage) {
  stage();  // faults in memory, and shows errors before anything is timed
  const double begin = thread_time();
  for ([[maybe_unused]] auto _ : state) stage();
  const double elapsed = thread_time() - begin;
  state.counters["ns/node"] = elapsed / (static_cast<double>(state.iterations()) * static_cast<double>(nodes));
  state.counters["nodes"] = static_cast<double>(nodes);
}

}  // namespace partax::bench
