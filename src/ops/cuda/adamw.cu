// AdamW's update, a block a piece of a lane; see ops/adamw.h for the arithmetic.
#include "core/launch.cuh"
#include "ops/cuda/adamw.h"

namespace palimpsest::ops {
namespace {

__global__ void update(AdamwArguments a) {
    const std::int64_t lane = blockIdx.y;
    if (!a.records.updated[lane]) return;
    const Piece piece = a.pieces[blockIdx.x];
    // The powers in double cost more than the elements of a thread: one thread takes them for its block.
    __shared__ AdamwCoefficients coefficients;
    if (threadIdx.x == 0) {
        coefficients = adamw_coefficients(a.rules[lane], a.records.updates[lane], a.records.clip[lane], a.factor);
        if (!piece.decayed) coefficients.shrink = 0;
    }
    __syncthreads();
    const AdamwCoefficients c = coefficients;
    const std::int64_t begin = piece.begin(lane);
    for (std::int64_t i = begin + threadIdx.x; i < begin + piece.count; i += blockDim.x)
        adamw_element(a.values[i], a.gradients[i], a.first[i], a.second[i], c);
}

const char* launch(const AdamwArguments& a, void* stream) {
    if (a.piece_count == 0) return nullptr;
    const dim3 grid(static_cast<unsigned>(a.piece_count), static_cast<unsigned>(a.lanes));
    update<<<grid, 256, 0, static_cast<cudaStream_t>(stream)>>>(a);
    return launch_error();
}

[[maybe_unused]] const bool registered = (adamw_kernel = launch) != nullptr;

}  // namespace
}  // namespace palimpsest::ops
