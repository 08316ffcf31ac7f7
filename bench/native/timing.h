// How a stage is timed.
#pragma once

#include <benchmark/benchmark.h>

#include <chrono>
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

// Repeats `stage`, which handles `nodes` nodes, as often as `state` asks for.
template <typename Stage>
void time_per_node(benchmark::State& state, std::size_t nodes, Stage&& stage) {
  using Clock = std::chrono::steady_clock;
  stage();  // faults in memory, and shows errors before anything is timed
  const Clock::time_point begin = Clock::now();
  for ([[maybe_unused]] auto _ : state) stage();
  const std::chrono::duration<double, std::nano> elapsed = Clock::now() - begin;
  state.counters["ns/node"] = elapsed.count() / (static_cast<double>(state.iterations()) * static_cast<double>(nodes));
  state.counters["nodes"] = static_cast<double>(nodes);
}

}  // namespace partax::bench
