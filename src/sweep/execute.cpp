#include "sweep/execute.h"

#include "core/log.h"
#include "core/text.h"
#include "store/sweep_file.h"
#include "sweep/inspect.h"
#include "sweep/plan.h"

#include <cmath>

namespace palimpsest {
namespace {

std::string line_of(const RunOutcome& outcome) {
    switch (outcome.state) {
        case RunState::finished: {
            const std::string policy = std::isfinite(outcome.best_policy) ? fmt::format(", best policy {:.3f}", outcome.best_policy) : "";
            return fmt::format("finished in {}: test accuracy {:.3f}{}", format_duration(outcome.seconds), outcome.test_accuracy, policy);
        }
        case RunState::interrupted: return outcome.message;
        default: return fmt::format("{}: {}", to_string(outcome.state), outcome.message);
    }
}

}  // namespace

std::vector<RunOutcome> execute_sweep(const Experiment& experiment, const ExecuteOptions& options, const StopRequest& request) {
    // A point of the grid that cannot work is told now, not in the middle of the night.
    static_cast<void>(inspect_runs(experiment.runs));

    const std::string folder = sweep_folder(options.results, experiment.name), sweep = sweep_id(experiment);
    const std::string yaml = manifest_yaml(experiment, options.results, options.command);
    for (const std::string& note : freeze_manifest(folder, yaml)) log_info("{}", note);

    std::vector<RunOutcome> outcomes;
    bool go_on = true;
    for (std::size_t i = 0; i < experiment.runs.size(); ++i) {
        const PlannedRun& run = experiment.runs[i];
        RunOutcome outcome;
        outcome.folder = run_folder(options.results, experiment.name, run);
        outcome.run_id = run.spec.id;
        outcome.human = human_name(run);
        if (!go_on || request.stop.load()) {
            outcomes.push_back(std::move(outcome));
            continue;
        }
        const std::string place = fmt::format("[{}/{}]", i + 1, experiment.runs.size());
        const Decision decision = decide(RunFolder(outcome.folder));
        log_info("{} {} {}{}  {}", place, to_string(decision.action), short_id(run.spec.id),
                 decision.reason.empty() ? "" : " (" + decision.reason + ")", varied_text(run.varied));
        try {
            outcome = execute_run(run, experiment, outcome.folder, sweep, fmt::format("{} {}", place, outcome.human), options, request);
        } catch (const Error& error) {
            outcome.skipped = decide(RunFolder(outcome.folder)).action == Action::leave;  // another process was faster
            outcome.state = outcome.skipped ? RunState::running : RunState::failed;
            outcome.message = error.what();
        }
        if (!outcome.skipped) log_info("{} {}", place, line_of(outcome));
        if (outcome.state == RunState::failed && options.fail_fast) go_on = false;
        outcomes.push_back(std::move(outcome));
    }
    const Manifest manifest = read_manifest(folder);
    write_sweep_file(folder, sweep, manifest.yaml, collect(manifest.runs));
    return outcomes;
}

}  // namespace palimpsest
