// What host and device compilers both need. No includes beyond <cstdint>: .cu files see this header.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define PALIMPSEST_HD __host__ __device__
#else
#define PALIMPSEST_HD
#endif
