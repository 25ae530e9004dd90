// The host's view of batches that a GPU makes. The programs are those that make batches on the host. This header needs none of
// CUDA: device.cuh has the kernel, and registers a launcher for each task that nvcc has compiled.
#pragma once

#include "task/batch_ids.h"
#include "task/events.h"

#include <cstdint>
#include <typeinfo>

namespace palimpsest {

// A `DeviceBatch` is one batch for every lane. All pointers except `fault` are to memory of the device.
struct DeviceBatch {
    BatchRange range;
    const std::uint64_t* seeds = nullptr;  // [R]
    std::int64_t lanes = 0, rows = 0;      // R, B
    const std::uint32_t* table = nullptr;  // a copy of the program's table; null where the program has none
    BatchView out;                         // [R * B, …]
    std::int64_t* workspace = nullptr;     // [R * B, workspace_words]
    // Pinned memory of the host, 0 while all is well. The first program that breaks its shape writes `mark` there and leaves a row
    // of zeros: a token that the embedding lacks would raise an error of the device before ours.
    std::int64_t* fault = nullptr;
    std::int64_t mark = 0;
    void* stream = nullptr;  // a cudaStream_t
};

// A `DeviceLauncher` enqueues the making of a batch. It returns nullptr, or the text of CUDA's error.
using DeviceLauncher = const char* (*)(const EventProgram& program, Stream stream, const DeviceBatch& batch);

// Launchers are kept by type of program. `find` returns nullptr for a program that nvcc has not compiled.
void register_device_launcher(const std::type_info& program, DeviceLauncher launcher);
DeviceLauncher find_device_launcher(const std::type_info& program);

}  // namespace palimpsest
