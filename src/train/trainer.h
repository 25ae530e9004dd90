// Trains a pack of lanes: runs that differ only in their lane values. One lane is an ordinary run. The trainer knows no YAML and no
// HDF5: it reports to a RunSink per lane.
#pragma once

#include "config/spec.h"
#include "train/eval_result.h"
#include "train/lane_values.h"
#include "train/operator_times.h"
#include "train/train_metrics.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace palimpsest {

// What a person who waits is shown: some metrics of the newest row.
struct Progress {
    std::int64_t step = 0, steps = 0;
    double loss = 0, accuracy = 0, gradient_norm = 0, lr = 0;
    double seconds_per_step = 0;  // windowed
    double tokens_per_second = 0;
};

// One lane's listener. The default does nothing. What it throws ends its lane as failed, and no other.
class RunSink {
public:
    virtual ~RunSink() = default;
    virtual void train_row(std::int64_t /*step*/, std::span<const float> /*metrics*/) {}
    virtual void eval(const EvalResult&) {}
    virtual void progress(const Progress&) {}
    // Before a checkpoint of `step` gets its name: whoever records must have all rows up to `step` on disk when this returns.
    virtual void checkpoint_begins(std::int64_t /*step*/) {}
    virtual void checkpoint_written(const std::string& /*path*/, std::int64_t /*step*/) {}
    virtual void warning(const std::string& /*message*/) {}
    // Before the other lanes have come to their end: its lane takes part no more, and the listener hears of no more rows. Of
    // `result` reason, message, failure and step are known; the rest comes with the result of Trainer::run. Must not throw.
    virtual void ended(const struct LaneResult& /*result*/) {}
};

enum class StopReason { finished, early_stop, interrupted, non_finite, failed };
inline constexpr const char* stop_reason_names[] = {"finished", "early_stop", "interrupted", "non_finite", "error"};

struct LaneResult {
    StopReason reason = StopReason::finished;
    std::string message;                                // non_finite: step, lane and tensor named; failed: what the failure says
    std::exception_ptr failure;                         // failed: what its listener or its checkpoint folder threw
    std::int64_t step = 0;                              // at which the lane ended; steps count from 1
    EvalResult last, best;                              // best by spec.eval.select_by
    double final_loss = 0;                              // training loss, mean over the last 50 updates
    std::int64_t parameters = 0, fixed_parameters = 0;  // trained; and drawn once for all
    std::int64_t state_bytes = 0, state_length = 0;
    double seconds = 0;            // wall time of this start, everything included
    double tokens_per_second = 0;  // of this lane, over the time spent in training steps of this start, up to its own end
};

struct Lane {
    LaneValues values;
    RunSink* sink = nullptr;        // nullptr: nobody listens
    std::string checkpoint_folder;  // "" : no checkpoints
    std::string run_id;             // written into the checkpoints and compared on resume; "": not compared
};

// The parts of a training step, in their order; update is the optimizer with its clipping.
enum class StepPart { data, forward, backward, update, metrics };
inline constexpr const char* step_part_names[] = {"data", "forward", "backward", "update", "metrics"};

// Milliseconds of every step measured, and of its parts.
struct StepTimes {
    std::vector<double> total;
    std::array<std::vector<double>, std::size(step_part_names)> parts;
    std::int64_t not_finite = 0;                 // the first step whose loss or gradient was not finite; 0: none
    std::vector<train::OperatorTime> operators;  // of a step, the longest first; where they were asked for
};

class Trainer {
public:
    // All lanes share `spec` up to their lane values. Throws Error(usage) where task, model or options do not fit together.
    Trainer(const RunSpec& spec, std::vector<Lane> lanes);
    ~Trainer();

    // Loads the newest good checkpoint of every lane (all at one step) and removes those beyond it, which the run makes again;
    // returns that step, or 0 when there is none. A lane whose checkpoint is refused (of another run, model or format) fails alone.
    std::int64_t resume();
    // Before run(): takes a lane out of the pack, or tells why it is out. It takes part no more, and its result says `failed`.
    void fail_lane(std::size_t lane, std::exception_ptr failure);
    std::exception_ptr failure(std::size_t lane) const;  // null: none
    // Runs to the end, or until `stop` becomes true (then finishes the step and checkpoints). Once.
    std::vector<LaneResult> run(const std::atomic<bool>& stop);
    // Instead of a run: makes `warmup` steps, then measures `repeats`; on a GPU as many again for the parts, since to wait for each
    // of them would slow the step. `operators` (on the CPU) asks for these too, in as many steps again. The run must have so many
    // steps.
    StepTimes time_steps(std::int64_t warmup, std::int64_t repeats, bool operators);

    std::vector<struct Slice> slices() const;          // of the evaluation, for the run's header
    std::vector<std::int64_t> policy_answers() const;  // [policy, S, C] of the task's shallow policies
    std::int64_t parameter_count() const;              // trained
    std::int64_t fixed_parameter_count() const;        // drawn, not trained
    std::int64_t state_bytes();                        // at the longest segment
    std::int64_t state_length() const;                 // of that segment

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace palimpsest
