// Integer weights of a power law, the same on every machine. std::pow may round differently with another mathematical library, and
// one weight that is off by one would shift every later example, so only operations that IEEE 754 fixes are used here. Host only.
#pragma once

#include <cstdint>
#include <vector>

namespace palimpsest {

// Returns weights in proportion to i ^ exponent, i = 1 … count, that sum to about 2^30. None is 0; any finite exponent will do.
std::vector<std::uint32_t> power_law(std::int64_t count, double exponent);

}  // namespace palimpsest
