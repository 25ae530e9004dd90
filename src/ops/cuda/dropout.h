// The kernel that draws the masks of dropout on a GPU, as the host sees it: no header of CUDA is needed here.
#pragma once

#include <cstdint>

namespace palimpsest::ops {

// Enqueues the mask [lanes, elements] of layers.h, with words below `threshold` being 0 and others `kept`. All pointers are to
// memory of the device: seeds [lanes], steps [lanes] or, where they are shared, [1]. `counter` is the low half of the first block's
// counter. Returns nullptr, or what CUDA says against it.
using DropoutKernel = const char* (*)(float* mask, std::int64_t lanes, std::int64_t elements, const std::int64_t* seeds,
                                      const std::int64_t* steps, bool shared_step, std::int64_t counter, std::int64_t threshold,
                                      float kept, void* stream);

// dropout.cu sets it before main; it stays null in a build without CUDA.
inline DropoutKernel dropout_kernel = nullptr;

}  // namespace palimpsest::ops
