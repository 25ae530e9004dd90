// Runs the plan of a sweep: starts a worker process for each pack of runs that are to be trained, and reports what became of every
// run. Who trains a run is settled by its LOCK, in the worker; what became of it is read from its folder.
#pragma once

#include "config/spec.h"
#include "sweep/options.h"
#include "sweep/plan.h"
#include "sweep/stop.h"

#include <memory>
#include <vector>

namespace palimpsest {

struct SweepResult {
    Manifest plan;
    std::unique_ptr<PlanInForce> in_force;
    std::vector<RunOutcome> outcomes;  // in order of the plan; a run that was not reached has no id, and RunState::fresh
};

// Trains all packs of the plan in worker processes (`palimpsest work`), options.workers at a time. The plan is put in force first,
// and stays so while the result lives. Whatever becomes of a worker costs its own pack alone.
SweepResult execute_sweep(const Experiment& experiment, const ExecuteOptions& options, const StopRequest& request);

}  // namespace palimpsest
