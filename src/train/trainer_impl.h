// The inside of Trainer: trainer.cpp makes the steps, trainer_lanes.cpp watches over the lanes, trainer_resume.cpp saves and loads.
#pragma once

#include <chrono>
#include <functional>
#include <optional>

#include "model/model.h"
#include "train/checkpoint.h"
#include "train/data.h"
#include "train/evaluate.h"
#include "train/optimizer.h"
#include "train/runtime.h"
#include "train/schedule.h"
#include "train/trainer.h"

namespace palimpsest {

// Time spent in training steps: paused during evaluation and checkpoints.
class StepClock {
public:
    void start() { began_ = std::chrono::steady_clock::now(); }
    void stop() {
        if (began_) seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - *began_).count();
        began_.reset();
    }
    double seconds() const {
        return seconds_ + (began_ ? std::chrono::duration<double>(std::chrono::steady_clock::now() - *began_).count() : 0);
    }

private:
    std::optional<std::chrono::steady_clock::time_point> began_;
    double seconds_ = 0;
};

struct Trainer::Impl {
    // Columns of the ring: those of a training row, then what was not finite (train::Cause).
    static constexpr std::int64_t row_columns = static_cast<std::int64_t>(std::size(train_metric_names)),
                                  ring_columns = row_columns + 1;
    enum Column : std::size_t { loss, accuracy, gradient_norm, lr, skipped, cause };

    // What the host knows of a lane.
    struct LaneState {
        bool ended = false;
        StopReason reason = StopReason::finished;
        std::string message;
        std::int64_t step = 0;
        EvalResult last, best;  // step 0: none yet
    };

    Impl(const RunSpec& run_spec, std::vector<Lane> run_lanes);

    // trainer.cpp
    void train_step(std::int64_t step);
    StepContext context(std::int64_t step, bool training) const;
    void evaluate();
    bool evaluation_due() const;
    std::vector<LaneResult> run(const std::atomic<bool>& stop);
    void check_overlap() const;

    // bench.cpp
    StepTimes time_steps(std::int64_t warmup, std::int64_t repeats, bool operators);

    // trainer_lanes.cpp
    void settle();                                        // reads the ring: lanes that went non-finite are ended or warned about
    void write_rows();                                    // the window's row of every lane that has not ended, and progress
    void write_row(std::size_t lane, std::int64_t rows);  // the row over the window's first `rows` steps
    void end_lane(std::size_t lane, StopReason reason, std::int64_t at_step, std::string message);
    std::string name_cause(std::int64_t step, std::int64_t lane, std::int64_t cause);
    bool all_ended() const;
    void warn(std::size_t lane, const std::string& message) const;
    std::int64_t window_start() const { return (step - 1) / log_every * log_every; }

    // trainer_resume.cpp
    void write_checkpoints();
    train::Checkpoint pack(std::size_t lane, const at::Tensor& values, const at::Tensor& first, const at::Tensor& second);
    std::vector<std::pair<std::string, at::Tensor>> lane_arrays(std::size_t lane, const at::Tensor& values, const at::Tensor& first,
                                                                const at::Tensor& second);
    std::int64_t resume();
    void unpack(std::size_t lane, const train::Checkpoint& checkpoint);
    std::vector<std::pair<std::string, std::string>> identity(std::size_t lane) const;
    void check_identity(std::size_t lane, const train::Checkpoint& checkpoint, const std::string& path);

    RunSpec spec;
    std::vector<Lane> lanes;
    train::Runtime runtime;
    train::Segments segments;
    Model model;
    train::AdamW optimizer;
    train::TrainData data;
    train::LearningRate learning_rate;
    train::Evaluator evaluator;

    at::Tensor lane_seeds, lane_lr;  // [R] int64, [R] float, on the device
    std::int64_t log_every;
    at::Tensor ring;               // [log_every, R, ring_columns] float, on the device: the steps since the last row
    std::vector<float> window;     // the same on the host, as far as it was read
    std::int64_t window_rows = 0;  // rows of `window` that were looked at
    std::int64_t step = 0;         // steps made
    std::vector<LaneState> states;
    bool has_run = false;
    std::function<void(StepPart)> part_done;  // told after each part of a step, where somebody measures

    StepClock clock;
    std::int64_t tokens = 0;  // of one lane, in this start
    double row_seconds = 0;   // clock and tokens at the last row
    std::int64_t row_tokens = 0, row_step = 0;
};

}  // namespace palimpsest
