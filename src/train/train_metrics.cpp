#include "train/train_metrics.h"

#include "core/error.h"
#include "train/step_outcome.h"

#include <algorithm>

namespace palimpsest {
namespace {

using train::StepOutcome;

constexpr TrainMetric table[] = {
    {"loss", "1", "training loss, mean over the steps since the row before", Reduce::mean,
     [](const StepOutcome& step) { return step.loss; }},
    {"accuracy", "1", "training accuracy, mean over the steps since the row before", Reduce::mean,
     [](const StepOutcome& step) { return step.accuracy; }},
    {"gradient_norm", "1", "norm of the gradient before clipping, mean since the row before", Reduce::mean,
     [](const StepOutcome& step) { return step.optimizer.gradient_norm(); }},
    {"lr", "1", "learning rate", Reduce::last, [](const StepOutcome& step) { return step.lr; }},
    {"skipped", "1", "updates skipped since the start of the run", Reduce::last,
     [](const StepOutcome& step) { return step.optimizer.skipped(); }},
};

}  // namespace

constinit const std::span<const TrainMetric> train_metrics = table;

std::size_t train_metric(std::string_view name) {
    const auto found =
        std::find_if(train_metrics.begin(), train_metrics.end(), [&](const TrainMetric& metric) { return metric.name == name; });
    PALIMPSEST_ASSERT(found != train_metrics.end(), "no training metric '{}'", name);
    return static_cast<std::size_t>(found - train_metrics.begin());
}

}  // namespace palimpsest
