// The host's view of batches that a GPU makes by the programs that make them on the host. It needs no header of CUDA: device.cuh
// has the kernel, and registers a launcher for each task that nvcc has compiled.
#pragma once

#include "task/batch_ids.h"
#include "task/events.h"

#include <cstdint>
#include <typeinfo>

namespace palimpsest {

// One batch for every lane. All pointers are to memory of the device but `fault`.
struct DeviceBatch {
    BatchRange range;
    const std::uint64_t* seeds = nullptr;  // [R]
    std::int64_t lanes = 0, rows = 0;      // R, B
    const std::uint32_t* table = nullptr;  // a copy of the program's table; null where it has none
    BatchView out;                         // [R * B, …]
    std::int64_t* workspace = nullptr;     // [R * B, workspace_words]
    // Pinned memory of the host, 0 while all is well. The first program that breaks its shape leaves `mark` there, and its row is
    // zeros: no token may be one that the embedding lacks, or the error of the device would come before ours.
    std::int64_t* fault = nullptr;
    std::int64_t mark = 0;
    void* stream = nullptr;  // a cudaStream_t
};

// Enqueues the making of a batch. Returns nullptr, or what CUDA says against it.
using DeviceLauncher = const char* (*)(const EventProgram& program, Stream stream, const DeviceBatch& batch);

// By type of program; find returns nullptr for one that nvcc has not compiled.
void register_device_launcher(const std::type_info& program, DeviceLauncher launcher);
DeviceLauncher find_device_launcher(const std::type_info& program);

}  // namespace palimpsest
