// Masks of dropout by counter, a thread a block of four elements; see ops/dropout.cpp for what a mask is.
#include "core/launch.cuh"
#include "core/philox.h"
#include "ops/cuda/dropout.h"

namespace palimpsest::ops {
namespace {

__global__ void mask_kernel(float* mask, std::int64_t lanes, std::int64_t elements, std::int64_t blocks, const std::int64_t* seeds,
                            const std::int64_t* steps, bool shared_step, std::int64_t counter, std::int64_t threshold, float kept) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= lanes * blocks) return;
    const std::int64_t lane = i / blocks, block = i % blocks, first = 4 * block;
    const Philox4 words = philox(static_cast<std::uint64_t>(seeds[lane]), static_cast<std::uint64_t>(counter | block),
                                 static_cast<std::uint64_t>(steps[shared_step ? 0 : lane]));
    float* row = mask + lane * elements;
    for (std::int64_t j = 0; j < 4 && first + j < elements; ++j) row[first + j] = words.word[j] < threshold ? 0.0f : kept;
}

const char* launch(float* mask, std::int64_t lanes, std::int64_t elements, const std::int64_t* seeds, const std::int64_t* steps,
                   bool shared_step, std::int64_t counter, std::int64_t threshold, float kept, void* stream) {
    const std::int64_t blocks = (elements + 3) / 4, threads = 256, grid = (lanes * blocks + threads - 1) / threads;
    if (grid == 0) return nullptr;
    mask_kernel<<<static_cast<unsigned>(grid), static_cast<unsigned>(threads), 0, static_cast<cudaStream_t>(stream)>>>(
        mask, lanes, elements, blocks, seeds, steps, shared_step, counter, threshold, kept);
    return launch_error();
}

[[maybe_unused]] const bool registered = (dropout_kernel = launch) != nullptr;

}  // namespace
}  // namespace palimpsest::ops
