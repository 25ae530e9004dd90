// One run of a pack: its folder from the lock to DONE, its log and its file. A pack of one is an ordinary run.
#pragma once

#include "sweep/execute.h"
#include "sweep/plan.h"
#include "sweep/record.h"
#include "train/trainer.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace palimpsest {

// What the lanes of a pack have in common.
struct PackFacts {
    const Experiment& experiment;
    const ExecuteOptions& options;
    std::string sweep;                         // its id; "" for a run alone
    std::string label;                         // of the live line
    std::size_t lanes = 1;
    std::vector<Slice> slices;
    std::vector<std::int64_t> policy_answers;  // empty: not scored
};

class RunLane {
public:
    RunLane(const PlannedRun& run, const std::string& folder, const PackFacts& pack);
    ~RunLane();  // gives the lock back, if it still holds it

    // False where there is nothing to do: finished, or another process is at it. The outcome says so.
    bool wanted();
    // Takes the folder. False where another process was faster. Throws where it cannot be written.
    bool lock();
    Lane trainer_lane();                       // for the trainer's constructor
    // Writes what stands at the beginning of a start; `from`: the step that the trainer goes on from. `must_stop`: see RunRecorder.
    void open(Trainer& trainer, std::int64_t from, std::function<std::string()> must_stop);
    // How it ended; each gives the lock back.
    void end(const LaneResult& result, const StopRequest& request);
    void end_failed(const RunFailure& failure);
    void end_lost(const std::string& message);  // the lock is another's now: nothing more is written
    // From another thread, when the process leaves in the middle of a step.
    void close_for_good(const StopRequest& request);

    RunFolder& folder() { return folder_; }
    const RunOutcome& outcome() const { return outcome_; }

private:
    void skip(const Decision& decision);
    void end_finished(const LaneResult& result, RunWriter& writer);

    const PlannedRun& run_;
    const PackFacts& pack_;
    RunFolder folder_;
    RunOutcome outcome_;
    std::int64_t from_ = 0;  // step of this start
    std::optional<RunLog> log_;
    std::optional<ProgressReporter> reporter_;
    RunRecorder recorder_;
};

}  // namespace palimpsest
