// The inside of Trainer: trainer.cpp makes the steps, trainer_lanes.cpp watches over the lanes, trainer_resume.cpp saves and loads.
#pragma once

#include "model/model.h"
#include "train/checkpoint.h"
#include "train/data.h"
#include "train/evaluate.h"
#include "train/metric_window.h"
#include "train/runtime.h"
#include "train/schedule.h"
#include "train/step_outcome.h"
#include "train/trainer.h"

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

namespace palimpsest {

// Steps of this start, the tokens of one lane in them, and the time spent in them: paused during evaluation and checkpoints.
class Pace {
public:
    void start() { began_ = std::chrono::steady_clock::now(); }
    void stop() {
        now_.seconds = seconds();
        began_.reset();
    }
    void made_step(std::int64_t tokens) {
        ++now_.steps;
        now_.tokens += tokens;
    }
    void lap() { lap_ = {now_.steps, now_.tokens, seconds()}; }

    double seconds() const {
        return now_.seconds + (began_ ? std::chrono::duration<double>(std::chrono::steady_clock::now() - *began_).count() : 0);
    }
    double tokens_per_second() const { return rate(static_cast<double>(now_.tokens), seconds()); }
    double lap_tokens_per_second() const { return rate(static_cast<double>(now_.tokens - lap_.tokens), seconds() - lap_.seconds); }
    double lap_seconds_per_step() const { return rate(seconds() - lap_.seconds, static_cast<double>(now_.steps - lap_.steps)); }

private:
    struct Reading {
        std::int64_t steps = 0, tokens = 0;
        double seconds = 0;
    };
    static double rate(double amount, double of) { return of > 0 ? amount / of : 0; }

    std::optional<std::chrono::steady_clock::time_point> began_;
    Reading now_, lap_;
};

struct Trainer::Impl {
    // What the host knows of a lane.
    struct LaneState {
        bool ended = false;
        StopReason reason = StopReason::finished;
        std::string message;
        std::exception_ptr failure;
        std::int64_t step = 0;
        EvalResult last, best;         // step 0: none yet
        double tokens_per_second = 0;  // when it ended
    };

    Impl(const RunSpec& run_spec, std::vector<Lane> run_lanes);

    // trainer.cpp
    void train_step(std::int64_t step);
    StepContext context(std::int64_t step, bool training) const;
    void evaluate();
    bool evaluation_due() const;
    std::vector<LaneResult> run(const std::atomic<bool>& stop);

    // bench.cpp
    StepTimes time_steps(std::int64_t warmup, std::int64_t repeats, bool operators);

    // trainer_lanes.cpp
    void settle();                     // takes the metrics: lanes that went non-finite are ended or warned about
    void write_rows();                 // the row of every lane that has not ended, and progress
    void write_row(std::size_t lane);  // over the steps since its last one
    void end_lane(std::size_t lane, StopReason reason, std::int64_t at_step, std::string message);
    void fail_lane(std::size_t lane, std::exception_ptr failure);
    void freeze(std::size_t lane, StopReason reason, std::int64_t at_step, std::string message);
    // Whatever `action` throws ends this lane alone. False where it threw.
    bool guarded(std::size_t lane, const std::function<void()>& action);
    void tell(std::size_t lane, const std::function<void(RunSink&)>& what);
    void warn(std::size_t lane, const std::string& message);
    std::string name_cause(std::int64_t step, std::size_t lane, std::int64_t cause);
    bool all_ended() const;

    // trainer_resume.cpp
    void write_checkpoints();
    void write_checkpoint(std::size_t lane, const train::Checkpoint& checkpoint);
    // The flat buffers that make a lane: "parameter", and the states of the optimizer by their names.
    using Buffers = std::vector<std::pair<std::string, at::Tensor>>;
    Buffers buffers();
    train::Checkpoint pack(std::size_t lane, const Buffers& on_cpu);
    std::vector<std::pair<std::string, at::Tensor>> lane_arrays(std::size_t lane, const Buffers& flat);
    std::int64_t resume();
    std::optional<train::Checkpoint> good_checkpoint(std::size_t lane, std::int64_t at_step);
    void unpack(std::size_t lane, const train::Checkpoint& checkpoint);
    std::vector<std::pair<std::string, std::string>> identity(std::size_t lane) const;
    void check_identity(std::size_t lane, const train::Checkpoint& checkpoint, const std::string& path);

    RunSpec spec;
    std::vector<Lane> lanes;
    train::Runtime runtime;
    train::Segments segments;
    Model model;
    std::unique_ptr<train::Optimizer> optimizer;
    train::TrainData data;
    train::LearningRate learning_rate;
    train::Evaluator evaluator;

    at::Tensor lane_seeds, lane_lr;  // [R] int64, [R] float, on the device
    train::MetricWindow window;
    std::int64_t step = 0;  // steps made
    std::vector<LaneState> states;
    bool has_run = false;
    std::function<void(StepPart)> part_done;  // told after each part of a step, where somebody measures

    Pace pace;
};

}  // namespace palimpsest
