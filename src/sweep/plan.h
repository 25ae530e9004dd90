// From planned runs to folders, what is to be done with each, and what became of it.
#pragma once

#include "config/spec.h"
#include "core/file.h"
#include "store/collect.h"
#include "store/run_folder.h"
#include "sweep/stop.h"

#include <string>
#include <utility>
#include <vector>

namespace palimpsest {

// The part of a folder's name for people: the swept values ("mqar-delta-lr=0.001"), or task and mixers where nothing is swept.
std::string human_name(const PlannedRun& run);
// <results>/<experiment>
std::string sweep_folder(const std::string& results, const std::string& experiment);
// Where each run of the experiment lies, or will: <results>/<experiment>/<id>-<human part>. A run is found by its id, whatever the
// rest of its folder's name says, since that changes with what is swept. Error(usage) where a folder of that id holds another run.
std::vector<std::string> planned_folders(const std::string& results, const Experiment& experiment);
// What to type to go on with a run.
std::string resume_command(const std::string& folder);
// "task=mqar model.mixer=delta seed=2"
std::string varied_text(const std::vector<std::pair<std::string, std::string>>& varied);
std::string short_id(const std::string& run_id);

// The same for the same runs, in whatever order.
std::string sweep_id(const Experiment& experiment);

struct Decision {
    RunState state = RunState::fresh;
    std::string reason = {};  // "finished", "running: pid 4711 on host a", "interrupted at step 400", "failed at step 40: …", ""
    bool trains() const { return state != RunState::finished && state != RunState::running; }
    const char* action() const;  // "start", "resume", "skip", "leave alone"
};
Decision decide(const RunFolder& folder);
std::int64_t resume_step(const RunFolder& folder);  // of the newest good checkpoint; 0 without one

// What became of a run. Its folder tells: whoever trained it, in this process or in another, wrote its end there, unless the run
// was refused, or its worker died before it could write.
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

// The plan of a sweep, complete in itself. manifest.yaml in the sweep's folder holds it, frozen before the first run starts:
// workers read it instead of the config.
struct Manifest {
    std::string name, sweep_id, created, command, source_yaml;
    std::vector<std::string> overrides;
    // Their folders as paths that this process can open; their configs empty where an older version wrote the file.
    std::vector<SweepRun> runs;
};
Manifest plan_sweep(const Experiment& experiment, const std::string& results, const std::string& command);
std::string manifest_yaml(const Manifest& manifest);

// Error(usage) when `folder` has none, or one that cannot be understood.
Manifest read_manifest(const std::string& folder);
Manifest parse_manifest(const std::string& path, const std::string& yaml, const std::string& folder);
bool has_manifest(const std::string& folder);

// The plan that is in force in a sweep's folder, and stays so while this lives: of several sweeps that are at work there at one
// time all have the same plan, that of manifest.yaml.
class PlanInForce {
public:
    // Writes manifest.yaml, or joins a sweep that is at work there with the same plan; `plan` then takes over where its runs lie.
    // Error(usage) where one is at work with another plan.
    PlanInForce(const std::string& folder, Manifest& plan);
    // How the plan differs from the one that stood there before; folders of runs that are in it no more stay.
    const std::vector<std::string>& notes() const { return notes_; }

private:
    NeedsClosing closing_;
    FileLock lock_;
    std::vector<std::string> notes_;
};

// The runs of these ids as the manifest plans them. Error(usage) where one is not planned there, or where its config is no longer
// the run of its id: somebody edited the manifest, or another version of the program wrote it. `path`: of the manifest, for the
// messages.
Experiment planned_experiment(const std::string& path, const Manifest& manifest, const std::vector<std::string>& run_ids,
                              const Catalog& catalog);

}  // namespace palimpsest
