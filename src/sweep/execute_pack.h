// Trains a pack of runs in this process: from the locks on their folders to the end that each folder tells.
#pragma once

#include "config/spec.h"
#include "sweep/options.h"
#include "sweep/plan.h"
#include "sweep/stop.h"

#include <string>
#include <vector>

namespace palimpsest {

struct PackedRun {
    const PlannedRun* run;
    std::string folder;
};

// Trains runs of one shape as lanes of one model, each in its folder, and resumes what was cut off there. Runs that are finished,
// or at which another process is, drop out. A run that fails, or cannot start beside others that can, is an outcome; Error(usage)
// is thrown where none can start, before anything is created.
std::vector<RunOutcome> execute_pack(const Experiment& experiment, const std::vector<PackedRun>& runs, const std::string& sweep,
                                     const std::string& label, const ExecuteOptions& options, const StopRequest& request);

}  // namespace palimpsest
