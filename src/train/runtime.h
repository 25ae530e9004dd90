// Device, threads, precision and determinism of this process.
#pragma once

#include "config/spec.h"
#include "ops/tensor.h"

namespace palimpsest::train {

struct Runtime {
    at::Device device = at::kCPU;
    int threads = 1;
};

// Error(usage) where the device is not there or cannot compute in the precision asked for. On the CPU deterministic algorithms are
// switched on. Settings of a process: the last call holds.
Runtime apply_runtime(const RuntimeSpec& spec);

}  // namespace palimpsest::train
