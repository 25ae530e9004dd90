// What a run's file says about it: config, provenance, summary.
#pragma once

#include "config/spec.h"
#include "store/run_record.h"
#include "sweep/options.h"
#include "train/trainer.h"

#include <map>
#include <string>
#include <vector>

namespace palimpsest {

// What the lanes of a pack have in common; `lanes` and `policy_answers` are those of the group that trains now; before, of all.
struct PackFacts {
    const Experiment& experiment;
    const ExecuteOptions& options;
    std::string sweep;  // its id; "" for a run alone
    std::string label;  // of the live line
    std::size_t lanes = 1;
    std::vector<std::int64_t> policy_answers;  // empty: not scored
};
RunHeader run_header(const PlannedRun& run, const PackFacts& pack, const Trainer& trainer);

// Of a run that came to its end, whose evaluations and policy answers stand in `record`.
std::map<std::string, double> summary_values(const LaneResult& result, const RunRecord& record, AccuracyMean mean);
// Accuracy on the test questions of the best shallow policy of each segment, averaged as accuracy is; NaN when none was scored.
double best_policy_accuracy(const std::vector<Slice>& slices, const std::vector<std::int64_t>& policy_answers, AccuracyMean mean);

}  // namespace palimpsest
