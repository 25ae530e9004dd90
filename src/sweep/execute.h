// Runs a plan: creates folders, skips what is finished, resumes what was cut off, trains, records. Says what it does through the
// log.
#pragma once

#include "config/spec.h"
#include "store/run_folder.h"
#include "sweep/plan.h"
#include "sweep/progress.h"
#include "sweep/stop.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace palimpsest {

struct ExecuteOptions {
    std::string results = "results";
    std::string command;  // as one types it, for the records
    ProgressMode progress = ProgressMode::automatic;
    bool fail_fast = false;
    std::int64_t workers = 1;  // processes that train at one time, for the records and for a sweep
    bool inspected = false;    // the runs were found fit to start here (sweep/inspect.h): they are not looked at again
    std::function<void(const Progress&)> on_progress;  // told at every log point of every lane; may be empty
};

// A catalog over the task and mixer registries.
Catalog registry_catalog();

struct RunOutcome {
    std::string folder, run_id, human;
    RunState state = RunState::fresh;
    bool skipped = false;  // nothing was done: it was finished before, or another process is at it
    std::string message;   // why it did not finish; may have several lines
    double valid_accuracy = 0, test_accuracy = 0, best_policy = 0, seconds = 0;  // of a finished run
};
void read_finished(RunOutcome& outcome);  // the numbers that stand in a finished run's folder

// Trains runs of one shape as lanes of one model, each in its folder (resumed where it was cut off there). Those that are finished
// or at which another process is drop out. A run that fails, or cannot start beside others that can, is an outcome; Error(usage) is
// thrown where none can start, before anything is created.
struct PackedRun {
    const PlannedRun* run;
    std::string folder;
};
std::vector<RunOutcome> execute_pack(const Experiment& experiment, const std::vector<PackedRun>& runs, const std::string& sweep,
                                     const std::string& label, const ExecuteOptions& options, const StopRequest& request);
RunOutcome execute_run(const PlannedRun& run, const Experiment& experiment, const std::string& folder, const std::string& sweep,
                       const std::string& label, const ExecuteOptions& options, const StopRequest& request);  // a pack of one

// All packs of the plan in worker processes (`palimpsest work`), options.workers at a time; the plan is put in force first, and
// stays so while the result lives. Whatever becomes of a worker costs its own pack alone. Runs that were not reached stay
// RunState::fresh.
struct SweepResult {
    Manifest plan;
    std::unique_ptr<PlanInForce> in_force;
    std::vector<RunOutcome> outcomes;  // in order of the plan
};
SweepResult execute_sweep(const Experiment& experiment, const ExecuteOptions& options, const StopRequest& request);

}  // namespace palimpsest
