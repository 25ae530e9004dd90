// Runs a plan: creates folders, skips what is finished, resumes what was cut off, trains, records. Says what it does through the log.
#pragma once

#include "config/spec.h"
#include "store/run_folder.h"
#include "sweep/progress.h"
#include "sweep/stop.h"

#include <string>
#include <vector>

namespace palimpsest {

struct ExecuteOptions {
    std::string results = "results";
    std::vector<std::string> command;      // argv, for the provenance
    ProgressMode progress = ProgressMode::automatic;
    bool fail_fast = false;
};

// A catalog over the task and mixer registries.
Catalog registry_catalog();

struct RunOutcome {
    std::string folder, run_id, human;
    RunState state = RunState::fresh;
    bool skipped = false;                  // nothing was done: it was finished before, or another process is at it
    std::string message;                   // why it did not finish; may have several lines
    double valid_accuracy = 0, test_accuracy = 0, best_policy = 0, seconds = 0;  // of a finished run
};

// One run in `folder` (resumed when it was cut off there). A run that fails is an outcome; Error(usage) is thrown where task, model and
// options do not fit together, before anything is created.
RunOutcome execute_run(const PlannedRun& run, const Experiment& experiment, const std::string& folder, const std::string& sweep,
                       const std::string& label, const ExecuteOptions& options, const StopRequest& request);

// All runs one after the other; writes manifest.yaml first and sweep.h5 at the end, also after an interruption. Runs that were not
// reached stay RunState::fresh.
std::vector<RunOutcome> execute_sweep(const Experiment& experiment, const ExecuteOptions& options, const StopRequest& request);

}  // namespace palimpsest
