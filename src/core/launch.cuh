// The check after every launch of a kernel of this project. Only nvcc reads this file.
#pragma once

namespace palimpsest {

// Returns nullptr, or the error of the launch just made.
inline const char* launch_error() {
    const cudaError_t error = cudaGetLastError();
    if (error == cudaErrorNoKernelImageForDevice)
        return "this build has no code for this GPU; give CMAKE_CUDA_ARCHITECTURES its compute capability, and build again";
    return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace palimpsest
