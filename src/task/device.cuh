// Batches made on the device by the very programs that make them on the host. Only nvcc reads this file; no torch, no fmt.
#pragma once

#include "task/sinks.h"

namespace palimpsest {

// One thread an example. `program.table` points to device memory; `workspace` holds workspace_words(program) words an example. `fault`
// keeps the first Fault seen (0: none), so that the host can ask once in a while instead of at every step.
template <class P>
__global__ void layout_kernel(P program, std::uint64_t seed, Stream stream, const std::uint64_t* examples, std::int64_t count, BatchView out,
                              std::int64_t* workspace, int* fault) {
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= count) return;
    Rng rng(seed, stream, examples[row]);
    LayoutSink sink(program, workspace + row * workspace_words(program), out, row);
    program.emit(rng, sink);
    const Fault result = sink.finish();
    if (result != Fault::none) atomicCAS(fault, 0, static_cast<int>(result));
}

// Kernels of templates are local to their file; this is what other files call.
template <class P>
void launch_layout(const P& program, std::uint64_t seed, Stream stream, const std::uint64_t* examples, std::int64_t count, BatchView out,
                   std::int64_t* workspace, int* fault, cudaStream_t cuda_stream) {
    constexpr int threads = 64;
    layout_kernel<P><<<static_cast<unsigned>((count + threads - 1) / threads), threads, 0, cuda_stream>>>(program, seed, stream, examples,
                                                                                                       count, out, workspace, fault);
}

}  // namespace palimpsest

#define PALIMPSEST_DEVICE_TASK(P)                                                                                                  \
    template void palimpsest::launch_layout<P>(const P&, std::uint64_t, palimpsest::Stream, const std::uint64_t*, std::int64_t,    \
                                               palimpsest::BatchView, std::int64_t*, int*, cudaStream_t);
