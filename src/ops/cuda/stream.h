// The stream on which kernels of ours are launched.
#pragma once

#include "core/error.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace palimpsest::ops {

// ATen's current stream as a cudaStream_t. It is the default stream, CUDA's null pointer: nothing here trains on another one, and
// the number of the default stream is all that every LibTorch from 2.5 on tells without a header of CUDA.
inline void* default_stream(c10::Device device) {
    PALIMPSEST_ASSERT(c10::impl::VirtualGuardImpl(device.type()).getStream(device).id() == 0, "training on a stream of its own");
    return nullptr;
}

}  // namespace palimpsest::ops
