// What host and device compilers both need. Sources in .cu include this header, so it includes nothing beyond <cstdint>.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define PALIMPSEST_HD __host__ __device__
#else
#define PALIMPSEST_HD
#endif
