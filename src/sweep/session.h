// The lifetime of one run in this process: its folder from the lock to DONE, its log, and its file. A pack of runs is as many
// sessions, one a lane of the trainer, to which each listens.
#pragma once

#include "core/log.h"
#include "store/run_folder.h"
#include "store/run_lock.h"
#include "store/run_writer.h"
#include "sweep/plan.h"
#include "sweep/progress.h"
#include "sweep/record.h"
#include "sweep/stop.h"
#include "train/trainer.h"

#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace palimpsest {

// What FAILED.json says of what was thrown: its kind, and the first lines of its message.
RunFailure failure_of(const std::exception_ptr& thrown, std::int64_t step = -1);

// A session is opened (take, then open), and its end is written once, by whichever comes first: `ended` for a lane that failed or
// went non-finite, write_end after the training, fail, or close_now from another thread. What goes wrong with
// its folder meanwhile is thrown at the trainer, which ends that lane alone.
class RunSession final : public RunSink {
public:
    RunSession(const PlannedRun& run, const std::string& folder, const PackFacts& pack);
    ~RunSession() override;  // gives the lock back, if it still holds it

    // Says whether there is something to do: false where the run is finished, or another process is at it.
    bool wanted();
    // Ends a run that cannot start here. Nothing is created.
    void refuse(const std::string& problem);
    // Takes the folder and clears it for a new start. False where nothing is left to do: another process was faster, or has
    // finished the run. Throws where the folder cannot be written.
    bool take();
    Lane trainer_lane();  // for the trainer's constructor
    // Writes what stands at the beginning of a start; `from` is the step that the trainer goes on from.
    void open(Trainer& trainer, std::int64_t from);
    // Write how the run ended, and give the lock back. Where the lock is another's by now, nothing more is written.
    void write_end(const LaneResult& result, const StopRequest& request);
    void fail(const std::exception_ptr& thrown, std::int64_t step = -1);

    // Called from another thread.
    void heartbeat();
    // Closes the run when the process leaves in the middle of a step, if the training thread lets go of it before `deadline`.
    void close_now(const StopRequest& request, std::chrono::steady_clock::time_point deadline);

    const PlannedRun& run() const { return run_; }
    const RunFolder& folder() const { return folder_; }
    // What became of the run: what its folder tells, or the error that could not be written there.
    RunOutcome outcome() const;

    void train_row(std::int64_t step, std::span<const float> metrics) override;
    void eval(const EvalResult& result) override;
    void progress(const Progress& progress) override;
    void checkpoint_begins(std::int64_t step) override;
    void checkpoint_written(const std::string& path, std::int64_t step) override;
    void warning(const std::string& message) override;
    // A lane that failed gives its folder back at once, while the others go on.
    void ended(const LaneResult& result) override;

private:
    enum class Phase { before, locked, closed };

    RunWriter& writer();
    void end_finished(const LaneResult& result);
    void end_failed(const RunFailure& failure);
    void end_lost(const std::string& message);
    void give_back();
    double seconds() const;  // of this start, up to the lane's end

    const PlannedRun& run_;
    const PackFacts& pack_;
    const std::string prefix_;  // of its messages: which lane of a pack speaks
    RunFolder folder_;
    std::optional<RunLock> lock_;  // what was taken, also after it was given back
    std::optional<RunLog> log_;
    std::optional<ProgressReporter> reporter_;
    bool skipped_ = false;
    std::string problem_;  // the error that ended it; "" where none did

    std::timed_mutex mutex_;  // guards all that follows, and who ends the log, once the trainer runs
    Phase phase_ = Phase::before;
    std::unique_ptr<RunWriter> writer_;
    std::chrono::steady_clock::time_point began_;
    std::optional<std::chrono::steady_clock::time_point> ended_at_;  // where other lanes went on; stops seconds()
    std::int64_t from_ = 0, last_step_ = 0;
};

}  // namespace palimpsest
