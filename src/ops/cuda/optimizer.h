// The kernels that judge a gradient on a GPU, as the host sees them: no header of CUDA is needed here.
#pragma once

#include "ops/optimizer.h"

namespace palimpsest::ops {

// All pointers are to memory of the device.
struct JudgeArguments {
    const Piece* pieces;  // [P], of the parameters that are trained, in the order of the table
    std::int64_t piece_count, lanes;
    const float *gradients, *losses;  // flat; [R]
    double* sums;                     // [R, P], working memory
    LaneRecords records;
    UpdateRules rules;
};

// Enqueues two kernels: the sum of squares of every piece, in double; then for every lane the sum over its pieces and judge_lane.
// Each sum has an order of its own, whatever runs beside it, so that the same gradient gives the same bits. Returns nullptr, or
// what CUDA says against it.
using JudgeKernels = const char* (*)(const JudgeArguments& arguments, void* stream);

// optimizer.cu sets it before main; it stays null in a build without CUDA.
inline JudgeKernels judge_kernels = nullptr;

}  // namespace palimpsest::ops
