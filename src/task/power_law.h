// Integer weights of a power law, the same on every machine. std::pow may round differently with another mathematical library, and
// one weight that is off by one would shift every example after it; here only operations that IEEE 754 fixes are used. Host only.
#pragma once

#include <cstdint>
#include <vector>

namespace palimpsest {

// In proportion to i ^ exponent for i = 1 … count; they sum to about 2^30, and none is 0. Any finite exponent.
std::vector<std::uint32_t> power_law(std::int64_t count, double exponent);

}  // namespace palimpsest
