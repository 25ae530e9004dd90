// The learning rate of a step as a factor of the run's lr: a function of the step alone.
#pragma once

#include "config/spec.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace palimpsest::train {

// `step` counts from 0. Warm-up climbs linearly to 1 at step warmup - 1, always by step. The cosine falls from 1 to lr_final, by
// step over the steps after the warm-up, or by epoch over all epochs (as torch's CosineAnnealingLR stepped once an epoch).
class LearningRate {
public:
    LearningRate(const TrainSpec& train, std::int64_t steps, std::int64_t epoch_steps)
        : schedule_(train.schedule),
          by_(train.schedule_by),
          warmup_(train.warmup),
          final_(train.lr_final),
          steps_(steps),
          epoch_steps_(epoch_steps) {}

    double operator()(std::int64_t step) const {
        const double warm = step < warmup_ ? static_cast<double>(step + 1) / static_cast<double>(warmup_) : 1;
        if (schedule_ == Schedule::constant) return warm;
        double done = 0;
        if (by_ == Cadence::step) {
            done = static_cast<double>(std::max<std::int64_t>(0, step - warmup_)) /
                   static_cast<double>(std::max<std::int64_t>(1, steps_ - warmup_));
        } else {
            const std::int64_t epochs = std::max<std::int64_t>(1, (steps_ + epoch_steps_ - 1) / epoch_steps_);
            done = static_cast<double>(step / epoch_steps_) / static_cast<double>(epochs);
        }
        return warm * (final_ + (1 - final_) * 0.5 * (1 + std::cos(std::numbers::pi * done)));
    }

private:
    Schedule schedule_;
    Cadence by_;
    std::int64_t warmup_;
    double final_;
    std::int64_t steps_, epoch_steps_;
};

}  // namespace palimpsest::train
