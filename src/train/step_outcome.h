// What a training step leaves for the training log. Internal to the trainer and its metrics.
#pragma once

#include "train/optimizer.h"

namespace palimpsest::train {

// Tensors are [R], on the device.
struct StepOutcome {
    at::Tensor loss, accuracy, lr;
    Optimizer& optimizer;
};

}  // namespace palimpsest::train
