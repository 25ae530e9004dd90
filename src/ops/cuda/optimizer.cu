// The norm of a gradient and who is updated; see ops/optimizer.h for the judgement itself.
#include "core/launch.cuh"
#include "ops/cuda/optimizer.h"

namespace palimpsest::ops {
namespace {

constexpr unsigned threads = 256;

// Combines the values of all threads of a block in the order of a fixed tree; thread 0 has the result.
template <class T, class Combine>
__device__ T reduce(T value, Combine combine) {
    __shared__ T values[threads];
    values[threadIdx.x] = value;
    __syncthreads();
    for (unsigned half = threads / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) values[threadIdx.x] = combine(values[threadIdx.x], values[threadIdx.x + half]);
        __syncthreads();
    }
    return values[0];
}

struct Sum {
    __device__ double operator()(double a, double b) const { return a + b; }
};
struct Larger {
    __device__ std::int64_t operator()(std::int64_t a, std::int64_t b) const { return a > b ? a : b; }
};

// A block a piece of a lane.
__global__ void piece_sums(JudgeArguments a) {
    const Piece piece = a.pieces[blockIdx.x];
    const std::int64_t lane = blockIdx.y;
    const float* gradient = a.gradients + piece.begin(lane);
    double squares = 0;
    for (std::int64_t i = threadIdx.x; i < piece.count; i += threads) {
        const double g = gradient[i];
        squares += g * g;
    }
    squares = reduce(squares, Sum());
    if (threadIdx.x == 0) a.sums[lane * a.piece_count + blockIdx.x] = squares;
}

// A block a lane.
__global__ void judge(JudgeArguments a) {
    const std::int64_t lane = blockIdx.x;
    const double* sums = a.sums + lane * a.piece_count;
    double squares = 0;
    std::int64_t cause = Cause::none;
    for (std::int64_t i = threadIdx.x; i < a.piece_count; i += threads) {
        squares += sums[i];
        if (!is_finite(sums[i])) cause = Cause::first_gradient + a.pieces[i].parameter;
    }
    squares = reduce(squares, Sum());
    cause = reduce(cause, Larger());
    if (threadIdx.x == 0) judge_lane(a.records, lane, squares, cause, a.losses[lane], a.rules);
}

const char* launch(const JudgeArguments& a, void* stream) {
    const auto pieces = static_cast<unsigned>(a.piece_count), lanes = static_cast<unsigned>(a.lanes);
    if (pieces > 0) piece_sums<<<dim3(pieces, lanes), threads, 0, static_cast<cudaStream_t>(stream)>>>(a);
    if (const char* error = launch_error()) return error;
    judge<<<lanes, threads, 0, static_cast<cudaStream_t>(stream)>>>(a);
    return launch_error();
}

[[maybe_unused]] const bool registered = (judge_kernels = launch) != nullptr;

}  // namespace
}  // namespace palimpsest::ops
