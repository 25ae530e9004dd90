// The kernel that makes batches on the device. Only nvcc reads this file; no torch, no fmt.
#pragma once

#include "core/launch.cuh"
#include "task/device.h"
#include "task/sinks.h"

#include <algorithm>

namespace palimpsest {

// Lays out one example in each thread. A thread plays its events one after the other and mostly waits for its own memory, so few
// threads a block, over many multiprocessors, are quicker than full warps: their working memory then stays in the first cache.
template <class P>
__global__ void layout_kernel(P program, Stream stream, DeviceBatch batch) {
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= batch.lanes * batch.rows) return;
    const std::uint64_t seed = batch.seeds[row / batch.rows];
    Rng rng(seed, stream, BatchIds(batch.range, seed)(row % batch.rows));
    LayoutSink sink(program, batch.workspace + row * workspace_words(program), batch.out, row);
    program.emit(rng, sink);
    if (sink.finish() == Fault::none) return;
    const std::int64_t length = program.shape.length, answers = program.shape.queries * program.shape.vocabulary.value_tokens;
    for (std::int64_t i = 0; i < length; ++i) batch.out.tokens[row * length + i] = 0;
    for (std::int64_t i = 0; i < answers; ++i) batch.out.positions[row * answers + i] = batch.out.targets[row * answers + i] = 0;
    if (*batch.fault == 0) *batch.fault = batch.mark;
}

template <class P>
const char* launch_layout(const EventProgram& program, Stream stream, const DeviceBatch& batch) {
    const std::int64_t examples = batch.lanes * batch.rows;
    if (examples == 0) return nullptr;
    P on_device = static_cast<const P&>(program);
    on_device.table = batch.table;
    constexpr std::int64_t blocks_wanted = 512, most_threads = 32;
    const std::int64_t threads = std::clamp<std::int64_t>(examples / blocks_wanted, 1, most_threads);
    layout_kernel<P><<<static_cast<unsigned>((examples + threads - 1) / threads), static_cast<unsigned>(threads), 0,
                       static_cast<cudaStream_t>(batch.stream)>>>(on_device, stream, batch);
    return launch_error();
}

template <class P>
struct RegisterDeviceTask {
    RegisterDeviceTask() { register_device_launcher(typeid(P), launch_layout<P>); }
};

}  // namespace palimpsest

#define PALIMPSEST_DEVICE_TASK(P) static const palimpsest::RegisterDeviceTask<P> registered_on_device;
