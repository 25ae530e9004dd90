#include "train/metric_window.h"

#include "core/error.h"
#include "train/step_outcome.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace palimpsest::train {

void MetricWindow::Sums::add(const float* metrics) {
    ++to;
    const bool updated = static_cast<std::int64_t>(metrics[cause_column()]) == Cause::none;
    if (updated) {
        ++updates;
        if (recent.size() == recent_updates) recent.erase(recent.begin());
        recent.push_back(metrics[train_metric("loss")]);
    }
    for (std::size_t i = 0; i < train_metrics.size(); ++i) {
        const auto value = static_cast<double>(metrics[i]);
        if (train_metrics[i].reduce == Reduce::last) {
            totals[i] = value;
        } else if (updated) {
            totals[i] += value;
        }
    }
}

MetricWindow::Row MetricWindow::Sums::row() const {
    Row out(train_metrics.size());
    for (std::size_t i = 0; i < train_metrics.size(); ++i) {
        const bool mean = train_metrics[i].reduce == Reduce::mean;
        out[i] = !mean         ? static_cast<float>(totals[i])
                 : updates > 0 ? static_cast<float>(totals[i] / static_cast<double>(updates))
                               : std::numeric_limits<float>::quiet_NaN();
    }
    return out;
}

void MetricWindow::Sums::clear_row() {
    from = to;
    updates = 0;
    std::fill(totals.begin(), totals.end(), 0.0);
}

double MetricWindow::Sums::recent_loss() const {
    if (recent.empty()) return std::numeric_limits<double>::quiet_NaN();
    return std::accumulate(recent.begin(), recent.end(), 0.0) / static_cast<double>(recent.size());
}

MetricWindow::MetricWindow(std::int64_t lanes, at::Device device, std::int64_t capacity)
    : buffer_(
          at::zeros({capacity, lanes, static_cast<std::int64_t>(columns())}, at::TensorOptions().dtype(at::kFloat).device(device))),
      sums_(static_cast<std::size_t>(lanes)),
      frozen_(static_cast<std::size_t>(lanes)) {}

void MetricWindow::put(const StepOutcome& step) {
    std::vector<at::Tensor> by_lane;
    for (const TrainMetric& metric : train_metrics) by_lane.push_back(metric.of(step).to(at::kFloat));
    by_lane.push_back(step.optimizer.cause().to(at::kFloat));
    put(at::stack(by_lane, 1));
}

void MetricWindow::put(const at::Tensor& metrics) {
    PALIMPSEST_ASSERT(!full(), "step {} finds the buffer full of {} steps", put_ + 1, buffer_.size(0));
    buffer_.select(0, put_ - taken_).copy_(metrics);
    ++put_;
}

void MetricWindow::take(const NotFinite& not_finite) {
    const std::int64_t steps = put_ - taken_;
    if (steps == 0) return;
    const at::Tensor read = buffer_.narrow(0, 0, steps).cpu().contiguous();
    const float* metrics = read.const_data_ptr<float>();
    for (std::int64_t i = 0; i < steps; ++i) {
        const std::int64_t step = ++taken_;
        for (std::size_t lane = 0; lane < sums_.size(); ++lane, metrics += columns()) {
            if (frozen_[lane]) continue;
            sums_[lane].add(metrics);
            if (const auto found = static_cast<std::int64_t>(metrics[cause_column()]); found != Cause::none)
                not_finite(step, lane, found);
        }
    }
}

MetricWindow::Row MetricWindow::cut_row(std::size_t lane) {
    Sums& sums = sums_[lane];
    PALIMPSEST_ASSERT(sums.to > sums.from, "a row of no step, lane {}, step {}", lane, sums.to);
    const Row row = sums.row();
    sums.clear_row();
    return row;
}

void MetricWindow::restart(std::int64_t step) {
    put_ = taken_ = step;
    for (Sums& sums : sums_) {
        sums = Sums{};
        sums.from = sums.to = step;
    }
}

void MetricWindow::restore(std::size_t lane, const Sums& sums) {
    PALIMPSEST_ASSERT(sums.from <= sums.to && sums.to <= taken_, "lane {}: steps {} to {}, but {} were taken", lane, sums.from,
                      sums.to, taken_);
    sums_[lane] = sums;
}

}  // namespace palimpsest::train
