// Can these runs start here? One answer for whoever asks before anything starts: what `check` passes, `run`, `sweep` and `work`
// start.
#pragma once

#include "config/spec.h"

#include <cstdint>
#include <string>
#include <vector>

namespace palimpsest {

struct RunSize {
    std::int64_t parameters = 0;
    std::int64_t state_bytes = 0, state_length = 0;  // of one sequence of the longest segment
    std::int64_t steps = 0;
};

struct Inspected {
    RunSize size;
    std::string problem;  // why it cannot start, a line for each reason; "" where it can
};

struct InspectOptions {
    std::int64_t lanes = 0;            // sweep.lanes: how many runs of one shape train as one model; 0: the planner's choice
    std::vector<std::string> folders;  // of the runs; empty: all begin from nothing
};

// Looks at the machine, the tasks, the sizes of models and tables, and the data of every run, and at what they share only once.
// Runs that their folders show as finished, or in other hands, start nothing and so have no problem; of one that has a checkpoint
// the data were searched when it began.
std::vector<Inspected> inspect(const std::vector<const PlannedRun*>& runs, const InspectOptions& options);

// The same for a plan: Error(usage) with all problems, each with the first run that has it, where one run cannot start.
std::vector<RunSize> inspect_runs(const std::vector<PlannedRun>& runs, const InspectOptions& options = {});

}  // namespace palimpsest
