// What can be known of runs before any of them starts: do their parts fit together, and how large are they.
#pragma once

#include "config/spec.h"

#include <cstdint>
#include <vector>

namespace palimpsest {

struct RunSize {
    std::int64_t parameters = 0;
    std::int64_t state_bytes = 0, state_length = 0;  // of one sequence of the longest segment
    std::int64_t steps = 0;
};

// Compiles every task and builds every model once, on the CPU. Error(usage) with all that does not fit, each with the run it is about.
std::vector<RunSize> inspect_runs(const std::vector<PlannedRun>& runs);

}  // namespace palimpsest
