// The columns of the training log. Each is one row of a table in train_metrics.cpp: its name, what it means, and how it is made of
// a step. The log's buffer, the rows of a run's record and its checkpoints follow the table.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace at {
class Tensor;
}

namespace palimpsest {

namespace train {
struct StepOutcome;
}

// A row stands for the steps since the row before it: a mean is one over the updates made among them (NaN over no update), the
// others are those of the last step.
enum class Reduce { mean, last };

struct TrainMetric {
    const char *name, *units, *words;
    Reduce reduce;
    at::Tensor (*of)(const train::StepOutcome& step);  // [R], on the device, without reading anything back
};

extern const std::span<const TrainMetric> train_metrics;

// The column of a name. An assertion fails where there is none.
std::size_t train_metric(std::string_view name);

}  // namespace palimpsest
