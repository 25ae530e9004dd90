// Integer weights of a power law, the same on every machine. std::pow may round differently with another mathematical library, and
// one weight that is off by one would shift every later example, so only operations that IEEE 754 fixes are used here. Host only.
#pragma once

#include <cstdint>
#include <vector>

namespace palimpsest {

// Returns weights in proportion to i ^ exponent for i = 1 … count. They sum to about 2^30, and none is 0. The exponent
// may be any finite number.
std::vector<std::uint32_t> power_law(std::int64_t count, double exponent);

}  // namespace palimpsest
