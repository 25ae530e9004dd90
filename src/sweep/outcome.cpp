#include "sweep/outcome.h"

#include "core/error.h"
#include "core/log.h"
#include "store/run_reader.h"
#include "sweep/plan.h"

#include <limits>

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
        const auto value = [&](const char* name) {
            const auto found = record.summary.find(name);
            return found == record.summary.end() ? std::numeric_limits<double>::quiet_NaN() : found->second;
        };
        outcome.valid_accuracy = value("valid_accuracy");
        outcome.test_accuracy = value("test_accuracy");
        outcome.best_policy = value("best_policy_accuracy");
        outcome.seconds = value("seconds");
    } catch (const Error& error) {
        outcome.state = RunState::failed;
        outcome.message = error.what();
        log_error("{}", error.what());
    }
    return outcome;
}

}  // namespace palimpsest
