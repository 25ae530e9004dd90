// Random numbers of initial values: a function of (lane seed, stream, name) and of the order in which they are taken.
#pragma once

#include "core/hash.h"
#include "core/philox.h"

#include <cmath>
#include <numbers>
#include <string>

namespace palimpsest::nn {

// `Draws` takes two words of the generator for each number, which gives 53 bits.
class Draws {
public:
    Draws(std::uint64_t lane_seed, Stream stream, const std::string& name) : rng_(lane_seed, stream, fnv1a(name)) {}

    double uniform() {  // [0, 1)
        const std::uint64_t high = rng_.next(), low = rng_.next();
        return static_cast<double>(((high << 32) | low) >> 11) * 0x1p-53;
    }

    double normal() {  // by Box and Muller 1958; both numbers of a pair are used
        if (has_spare_) {
            has_spare_ = false;
            return spare_;
        }
        const double radius = std::sqrt(-2 * std::log(1 - uniform())), angle = 2 * std::numbers::pi * uniform();
        spare_ = radius * std::sin(angle);
        has_spare_ = true;
        return radius * std::cos(angle);
    }

private:
    Rng rng_;
    double spare_ = 0;
    bool has_spare_ = false;
};

}  // namespace palimpsest::nn
