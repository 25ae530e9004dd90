// What became of a run. Its folder alone tells: whoever trained it, in this process or in another, wrote its end there.
#pragma once

#include "config/spec.h"
#include "store/run_state.h"

#include <string>

namespace palimpsest {

struct RunOutcome {
    std::string folder, run_id, human;
    RunState state = RunState::fresh;
    bool skipped = false;  // nothing was done: the run was finished before, or another process is at it
    std::string
        message;  // why it is not finished: "interrupted at step 400", "running: pid 4711 on host a", the error that ended it
    double valid_accuracy = 0, test_accuracy = 0, best_policy = 0, seconds = 0;  // of a finished run; NaN where not recorded
};

// Reads the outcome from the run's folder. A finished run whose record cannot be read counts as failed.
RunOutcome read_outcome(const PlannedRun& run, const std::string& folder);

}  // namespace palimpsest
