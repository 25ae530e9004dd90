#include "sweep/outcome.h"

#include "core/error.h"
#include "core/log.h"
#include "store/run_reader.h"
#include "sweep/plan.h"

namespace palimpsest {

RunOutcome read_outcome(const PlannedRun& run, const std::string& path) {
    const RunFolder folder(path);
    const Decision decision = decide(folder);
    RunOutcome outcome;
    outcome.folder = path;
    outcome.run_id = run.spec.id;
    outcome.human = human_name(run);
    outcome.state = decision.state;
    outcome.message = decision.reason;
    if (decision.state == RunState::failed) outcome.message = folder.failure()->message;
    if (decision.state != RunState::finished) return outcome;
    try {
        const RunRecord record = read_run(folder.file("run.h5"), results_only);
        outcome.valid_accuracy = summary_value(record, "valid_accuracy");
        outcome.test_accuracy = summary_value(record, "test_accuracy");
        outcome.best_policy = summary_value(record, "best_policy_accuracy");
        outcome.seconds = summary_value(record, "seconds");
    } catch (const Error& error) {
        outcome.state = RunState::failed;
        outcome.message = error.what();
        log_error("{}", error.what());
    }
    return outcome;
}

}  // namespace palimpsest
