// The console report with a table at its end: nanoseconds per node of every tree (rows) and stage (columns).
#pragma once

#include <benchmark/benchmark.h>

#include <map>
#include <string>
#include <vector>

namespace partax::bench {

class TableReporter final : public benchmark::ConsoleReporter {
 public:
  explicit TableReporter(OutputOptions options) : ConsoleReporter(options) {}

  void ReportRuns(const std::vector<Run>& runs) override;
  void Finalize() override;

 private:
  struct Cell {
    double value = 0;
    bool is_median = false;  // of repetitions, in place of the last of them
  };

  std::vector<std::string> trees_, stages_;  // as they come
  std::map<std::pair<std::string, std::string>, Cell> cells_;
};

}  // namespace partax::bench
