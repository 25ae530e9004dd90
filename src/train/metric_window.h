// The training log between two rows. Each step puts its metrics into a buffer on the device without waiting for it; at a log point
// the host takes them out and adds them, step by step, to the sums of every lane. The buffer's length is fixed, so a row may stand
// for any number of steps. Steps are absolute and count from 1.
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
    static std::size_t columns() { return train_metrics.size() + 1; }

    // The steps of a lane since its last row. A mean's total is its sum over the updates made, a last value's the value itself.
    struct Open {
        std::int64_t from = 0, to = 0, updates = 0;  // from: the step of the last row
        std::vector<double> totals = std::vector<double>(train_metrics.size());
        std::vector<float> recent;  // the losses of the last updates, rows or no rows; the newest is the last

        void add(const float* metrics);  // of step to + 1
        Row row() const;                 // a mean over no update is NaN
        void begin_row();
        double recent_loss() const;  // their mean, which no cadence changes; NaN without any
    };
    static constexpr std::size_t recent_updates = 50;

    static constexpr std::int64_t default_capacity = 256;
    MetricWindow(std::int64_t lanes, at::Device device, std::int64_t capacity = default_capacity);

    // The metrics of the step after the last one. Reads nothing back. Not while full.
    void put(const StepOutcome& step);
    void put(const at::Tensor& metrics);  // [R, columns]
    bool full() const { return put_ - taken_ == buffer_.size(0); }
    // Takes what was put. `not_finite` hears of every step of a lane that has a cause, in order, when the lane's window ends with
    // that step: it may take the row and close the lane.
    using NotFinite = std::function<void(std::int64_t step, std::size_t lane, std::int64_t cause)>;
    void take(const NotFinite& not_finite);

    // As far as the steps were taken.
    const Open& open(std::size_t lane) const { return open_[lane]; }
    Row take_row(std::size_t lane);                      // and begins the next window
    void close(std::size_t lane) { closed_[lane] = 1; }  // its window stays as it is
    // Goes on after `step` with nothing put, a lane with its steps since its last row.
    void restart(std::int64_t step);
    void restore(std::size_t lane, const Open& open);

private:
    at::Tensor buffer_;                 // [capacity, R, columns] float, on the device; row i is step taken_ + 1 + i
    std::int64_t put_ = 0, taken_ = 0;  // the last step that was
    std::vector<Open> open_;
    std::vector<char> closed_;
};

}  // namespace palimpsest::train
