// Runs a plan: creates folders, skips what is finished, resumes what was cut off, trains, records.
#pragma once

#include "config/spec.h"
#include "store/run_folder.h"

#include <atomic>
#include <string>
#include <vector>

namespace palimpsest {

enum class ProgressMode { automatic, always, never };

struct ExecuteOptions {
    std::string results = "results";
    std::vector<std::string> command;      // argv, for the provenance
    ProgressMode progress = ProgressMode::automatic;
    bool fail_fast = false;
    int rerun_limit = 0;
};

// A catalog over the task and mixer registries.
Catalog registry_catalog();

struct RunOutcome {
    std::string folder, run_id, human;
    RunState state = RunState::fresh;
    bool skipped = false;                  // was finished before
    std::string message;                   // last error line
    double valid_accuracy = 0, test_accuracy = 0, best_policy = 0, seconds = 0;
};

// One run in `folder` (resumed when a checkpoint stands there).
RunOutcome execute_run(const PlannedRun& run, const Experiment& experiment, const std::string& folder, const std::string& sweep_id,
                       const ExecuteOptions& options, const std::atomic<bool>& stop);
// All runs one after the other; writes manifest.yaml first and sweep.h5 at the end.
std::vector<RunOutcome> execute_sweep(const Experiment& experiment, const ExecuteOptions& options, const std::atomic<bool>& stop);

}  // namespace palimpsest
