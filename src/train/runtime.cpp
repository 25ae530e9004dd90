#include "train/runtime.h"

#include "core/error.h"
#include "core/text.h"
#include "core/thread.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <malloc.h>
#include <thread>

namespace palimpsest::train {
namespace {

// Every step allocates what the step before it gave back. By default glibc returns large blocks to the system each time, and every
// page of them costs a fault when it is written again: a tenth of a step with 256 tokens. (32 MiB is the largest threshold there
// is.)
void keep_freed_memory() {
#ifdef __GLIBC__
    ::mallopt(M_MMAP_THRESHOLD, 32 << 20);
    ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
    ::mallopt(M_TOP_PAD, 64 << 20);
#endif
}

std::int64_t cores() { return std::max<std::int64_t>(1, std::thread::hardware_concurrency()); }

}  // namespace

std::int64_t most_threads() { return std::max<std::int64_t>(16, 4 * cores()); }

void check_runtime(const RuntimeSpec& spec) {
    if (spec.threads > most_threads())
        fail(ExitCode::usage, "run.threads: {} on a machine of {}; at most {} are possible here (0 takes all cores)", spec.threads,
             plural(cores(), "core"), most_threads());
    if (spec.device == Device::cpu) {
        if (spec.precision != Precision::fp32)
            fail(ExitCode::usage,
                 "run.precision: {} needs a GPU; on the CPU everything is fp32 (set run.device: cuda or run.precision: fp32)",
                 spec.precision == Precision::tf32 ? "tf32" : "bf16");
        return;
    }
    if (!at::Context::hasCUDART())
        fail(ExitCode::usage, "run.device: cuda, but this build has no CUDA; set run.device: cpu, or build with a CUDA compiler");
    if (!at::Context::hasCUDA())
        fail(ExitCode::usage, "run.device: cuda, but no GPU was found; set run.device: cpu, or see `palimpsest doctor`");
}

Runtime apply_runtime(const RuntimeSpec& spec) {
    check_runtime(spec);
    Runtime runtime;
    runtime.threads = spec.threads > 0 ? static_cast<int>(spec.threads) : usable_threads();
    at::set_num_threads(runtime.threads);
    at::Context& context = at::globalContext();
    if (spec.device == Device::cpu) {
        context.setDeterministicAlgorithms(true, /*warn_only=*/false);
        // Tensors made by at::empty are always written before they are read; filling them first would only cost time.
        context.setDeterministicFillUninitializedMemory(false);
        keep_freed_memory();
        return runtime;
    }
    context.setDeterministicAlgorithms(false, false);
    // Products of layers ask for less where run.precision says so (ops/product.h); nothing else may.
    context.setFloat32MatmulPrecision("highest");
    runtime.device = at::Device(at::kCUDA, 0);
    return runtime;
}

}  // namespace palimpsest::train
