// The tables at the end of a sweep, as text.
#pragma once

#include "store/collect.h"
#include "sweep/plan.h"

#include <string>
#include <vector>

namespace palimpsest {

// "0.998", or "0.98 ± 0.01" over several runs; "-" where nothing was measured.
std::string mean_text(double mean, double deviation);

// Accuracy by the swept keys, mean over seeds, beside the best shallow policy, and what the columns mean: "accuracy: of the test
// questions; ±: …". Both "" when no run has ended. `width` as of Table::str.
struct ResultTable {
    std::string text, legend;
};
ResultTable result_table(const std::vector<CollectedRun>& runs, const std::vector<std::string>& varied, std::size_t width = 0);

// Every failed run with its last line of error, where its log is, and the command that tries again. "" when none failed.
std::string failure_table(const std::vector<RunOutcome>& outcomes);

}  // namespace palimpsest
