// Device, threads, precision and determinism of this process.
#pragma once

#include "config/spec.h"
#include "ops/tensor.h"

namespace palimpsest::train {

struct Runtime {
    at::Device device = at::kCPU;
    int threads = 1;
};

// So many threads this machine may be asked for: a few times its cores. Far more would starve it.
std::int64_t most_threads();

// Throws Error(usage) where this machine lacks the device, the device the precision, or the machine the processors for so many
// threads.
void check_runtime(const RuntimeSpec& spec);

// Checks it, and sets this process up for it; on the CPU deterministic algorithms are switched on. Settings of a process: the last
// call holds.
Runtime apply_runtime(const RuntimeSpec& spec);

}  // namespace palimpsest::train
