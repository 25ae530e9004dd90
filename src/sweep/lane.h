// One run of a pack: its folder from the lock to DONE, its log and its file. A pack of one is an ordinary run.
#pragma once

#include "core/log.h"
#include "store/run_file.h"
#include "store/run_folder.h"
#include "sweep/plan.h"
#include "sweep/progress.h"
#include "sweep/record.h"
#include "train/trainer.h"

#include <chrono>
#include <exception>
#include <mutex>
#include <optional>
#include <string>

namespace palimpsest {

// What FAILED.json says of what was thrown, in the first lines of its message.
RunFailure failure_of(const std::exception& error);
RunFailure failure_of(const std::exception_ptr& thrown, std::int64_t step);

// Listens to the trainer for its run. What goes wrong with one lane's folder is thrown at the trainer, which ends that lane alone.
class RunLane final : public RunSink {
public:
    RunLane(const PlannedRun& run, const std::string& folder, const PackFacts& pack);
    ~RunLane() override;  // gives the lock back, if it still holds it

    // False where there is nothing to do: finished, or another process is at it. The outcome says so.
    bool wanted();
    void refuse(const std::string& problem);  // it cannot start here; nothing is created
    // Takes the folder. False where another process was faster. Throws where it cannot be written.
    bool lock();
    std::int64_t step() const;  // of the newest good checkpoint; 0 without one
    Lane trainer_lane();        // for the trainer's constructor
    // Writes what stands at the beginning of a start; `from`: the step that the trainer goes on from.
    void open(Trainer& trainer, std::int64_t from);
    // How it ended; each gives the lock back. Where the lock is another's by now, nothing more is written.
    void end(const LaneResult& result, const StopRequest& request);
    void fail(const RunFailure& failure);

    // From another thread.
    void heartbeat();
    // When the process leaves in the middle of a step: closes the run, if the training thread lets go of it before `deadline`.
    void close_now(const StopRequest& request, std::chrono::steady_clock::time_point deadline);

    const PlannedRun& run() const { return run_; }
    const RunOutcome& outcome() const { return outcome_; }

    void train_row(std::int64_t step, std::span<const float> metrics) override;
    void eval(const EvalResult& result) override;
    void progress(const Progress& progress) override;
    void checkpoint_begins(std::int64_t step) override;
    void checkpoint_written(const std::string& path, std::int64_t step) override;
    void warning(const std::string& message) override;
    // A lane that failed gives its folder back at once, while the others go on.
    void ended(const LaneResult& result) override;

private:
    enum class Phase { before, locked, ended };

    void skip(const Decision& decision);
    RunWriter& writer();
    void end_finished(const LaneResult& result);
    void end_failed(const RunFailure& failure);
    void end_lost(const std::string& message);
    void leave();
    double seconds() const;  // of this start, up to the lane's end

    const PlannedRun& run_;
    const PackFacts& pack_;
    const std::string prefix_;  // of its messages: which lane of a pack speaks
    RunFolder folder_;
    RunOutcome outcome_;
    std::optional<RunLog> log_;
    std::optional<ProgressReporter> reporter_;

    std::timed_mutex mutex_;  // of all that follows, once the trainer runs
    Phase phase_ = Phase::before;
    std::optional<RunWriter> writer_;
    std::chrono::steady_clock::time_point began_;
    std::optional<std::chrono::steady_clock::time_point> ended_;  // its last step, where other lanes went on
    std::int64_t from_ = 0, last_step_ = 0;
};

}  // namespace palimpsest
