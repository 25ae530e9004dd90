// One run's listener: rows into run.h5, progress to people, warnings into the log.
#pragma once

#include "config/spec.h"
#include "core/error.h"
#include "core/log.h"
#include "store/run_file.h"
#include "sweep/progress.h"
#include "train/trainer.h"

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace palimpsest {

struct PackFacts;  // sweep/lane.h
RunHeader run_header(const PlannedRun& run, const PackFacts& pack, const Trainer& trainer);

// Another process has taken the run over: nothing in its folder is ours any more.
class LostLock : public Error {
public:
    explicit LostLock(const std::string& message) : Error(ExitCode::run_failed, message) {}
};

// name, value, unit; for a run that came to its end.
std::vector<std::tuple<std::string, double, std::string>> summary_values(const LaneResult& result, const std::vector<Slice>& slices,
                                                                         const std::vector<std::int64_t>& policy_answers, AccuracyMean mean);
// Accuracy on the test questions of the best shallow policy of each segment, averaged as accuracy is; NaN when none was scored.
double best_policy_accuracy(const std::vector<Slice>& slices, const std::vector<std::int64_t>& policy_answers, AccuracyMean mean);

// Listens to the trainer from its construction on; rows have a place to go once the file is open.
class RunRecorder final : public RunSink {
public:
    // `prefix` of its messages: which lane of a pack speaks.
    explicit RunRecorder(std::string prefix) : prefix_(std::move(prefix)) {}
    // `must_stop`: asked at every log point; a text that is not empty is thrown as LostLock.
    void open(RunWriter writer, ProgressReporter& reporter, std::function<std::string()> must_stop);
    RunWriter* writer() { return writer_ ? &*writer_ : nullptr; }  // nullptr before open

    void train_row(std::int64_t step, std::span<const float> metrics) override;
    void eval(const EvalResult& result) override;
    void progress(const Progress& progress) override;
    void checkpoint_begins(std::int64_t step) override;
    void checkpoint_written(const std::string& path, std::int64_t step) override;
    void warning(const std::string& message) override;

    const std::string& prefix() const { return prefix_; }

    // From another thread: closes the file and never lets go of it, so that the training thread writes nothing more.
    void close_for_good(const std::string& reason);

private:
    std::string prefix_;
    std::function<std::string()> must_stop_;
    std::timed_mutex mutex_;
    std::optional<RunWriter> writer_;
    ProgressReporter* reporter_ = nullptr;
    std::chrono::steady_clock::time_point began_;
    std::int64_t last_step_ = 0;
};

}  // namespace palimpsest
