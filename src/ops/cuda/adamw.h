// The kernel of AdamW on a GPU, as the host sees it: no header of CUDA is needed here.
#pragma once

#include "ops/adamw.h"
#include "ops/optimizer.h"

namespace palimpsest::ops {

// All pointers are to memory of the device. The flat buffers have one layout.
struct AdamwArguments {
    const Piece* pieces;  // [P]
    std::int64_t piece_count, lanes;
    float* values;
    const float* gradients;
    float *first, *second;
    const AdamwLane* rules;  // [R]
    LaneRecords records;     // as judge_kernels leave them
    // Of the learning rate. A step that is captured into a graph would repeat this number: it needs a table on the device over
    // records.updates, or over a counter of steps, in its place.
    double factor;
};

// Enqueues the update of values and moments of the lanes that are updated; those of the others are not touched. Returns nullptr, or
// what CUDA says against it.
using AdamwKernel = const char* (*)(const AdamwArguments& arguments, void* stream);

// adamw.cu sets it before main; it stays null in a build without CUDA.
inline AdamwKernel adamw_kernel = nullptr;

}  // namespace palimpsest::ops
