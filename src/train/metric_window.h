// The training log between two rows. Each step puts its metrics into a buffer on the device without waiting for it; at a log point,
// and when the buffer is full, the host takes them out and adds them, step by step, to the sums of every lane. A row is cut from
// these sums, so it may stand for any number of steps. Steps are absolute: the first is 1, so the number of a step is also how
// many there were. A lane's sums are those of the steps from + 1 to `to`; of a lane that is not frozen, `to` is the last step
// that was taken.
#pragma once

#include "ops/tensor.h"
#include "train/train_metrics.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace palimpsest::train {

class MetricWindow {
public:
    // One number for each of train_metrics, in their order. A step puts these and then its Cause.
    using Row = std::vector<float>;
    static std::size_t cause_column() { return train_metrics.size(); }
    static std::size_t columns() { return cause_column() + 1; }

    // The steps of a lane since its last row. A mean's total is its sum over the updates made, a last value's the value itself.
    struct Sums {
        std::int64_t from = 0, to = 0;  // the step of the last row; the last step that was added
        std::int64_t updates = 0;
        std::vector<double> totals = std::vector<double>(train_metrics.size());
        std::vector<float> recent;  // the losses of the last updates, rows or no rows; the newest is the last

        void add(const float* metrics);  // of step to + 1
        Row row() const;                 // a mean over no update is NaN
        void clear_row();
        double recent_loss() const;  // their mean, which no cadence changes; NaN without any
    };
    static constexpr std::size_t recent_updates = 50;

    static constexpr std::int64_t default_capacity = 256;
    MetricWindow(std::int64_t lanes, at::Device device, std::int64_t capacity = default_capacity);

    // The metrics of the step after the last one. Reads nothing back. Not while full.
    void put(const StepOutcome& step);
    void put(const at::Tensor& metrics);  // [R, columns]
    bool full() const { return put_ - taken_ == buffer_.size(0); }
    // Takes what was put. `not_finite` hears of every step of a lane that has a cause, in order, right after the step was added and
    // before later ones are: it may take the row and freeze the lane.
    using NotFinite = std::function<void(std::int64_t step, std::size_t lane, std::int64_t cause)>;
    void take(const NotFinite& not_finite);

    const Sums& sums(std::size_t lane) const { return sums_[lane]; }
    Row cut_row(std::size_t lane);                        // and begins the sums of the next
    void freeze(std::size_t lane) { frozen_[lane] = 1; }  // its sums stay as they are
    // Goes on after `step` with nothing put. Then restore() gives a lane its steps since its last row: up to `step`, or to an
    // earlier one where the lane is frozen next.
    void restart(std::int64_t step);
    void restore(std::size_t lane, const Sums& sums);

private:
    at::Tensor buffer_;                 // [capacity, R, columns] float, on the device; row i is step taken_ + 1 + i
    std::int64_t put_ = 0, taken_ = 0;  // the last step that was put, and the last that was taken
    std::vector<Sums> sums_;
    std::vector<char> frozen_;
};

}  // namespace palimpsest::train
