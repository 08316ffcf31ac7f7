#include "table_reporter.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

namespace partax::bench {
namespace {

constexpr int kTreeWidth = 14;
constexpr int kGap = 2;

void add_once(std::vector<std::string>& names, const std::string& name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

std::string in_digits(double value) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(value < 10 ? 2 : 1) << value;
  return text.str();
}

}  // namespace

void TableReporter::ReportRuns(const std::vector<Run>& runs) {
  ConsoleReporter::ReportRuns(runs);
  for (const Run& run : runs) {
    const auto counter = run.counters.find("ns/node");
    const std::string& name = run.run_name.function_name;
    const std::size_t slash = name.find('/');
    if (counter == run.counters.end() || slash == std::string::npos) continue;
    const std::string stage = name.substr(0, slash), tree = name.substr(slash + 1);
    add_once(stages_, stage);
    add_once(trees_, tree);
    Cell& cell = cells_[{tree, stage}];
    const bool is_median = run.aggregate_name == "median";
    if (is_median || (run.aggregate_name.empty() && !cell.is_median)) cell = {counter->second.value, is_median};
  }
}

void TableReporter::Finalize() {
  ConsoleReporter::Finalize();
  if (cells_.empty()) return;
  std::ostream& out = GetOutputStream();
  out << "\nNanoseconds per node\n" << std::left << std::setw(kTreeWidth) << "" << std::right;
  for (const std::string& stage : stages_) out << std::setw(static_cast<int>(stage.size()) + kGap) << stage;
  for (const std::string& tree : trees_) {
    out << "\n" << std::left << std::setw(kTreeWidth) << tree << std::right;
    for (const std::string& stage : stages_) {
      const auto cell = cells_.find({tree, stage});
      out << std::setw(static_cast<int>(stage.size()) + kGap)
          << (cell == cells_.end() ? std::string("-") : in_digits(cell->second.value));
    }
  }
  out << "\n" << std::flush;
}

}  // namespace partax::bench
