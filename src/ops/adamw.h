// The arithmetic of AdamW (Loshchilov and Hutter 2019, algorithm 2, with the learning rate in the decay as torch.optim.AdamW has
// it) for one element and for one lane. Host and GPU both run this: coefficients in double, elements in fp32.
#pragma once

#include "core/platform.h"

#include <cmath>

namespace palimpsest::ops {

// What a lane brings to all its steps.
struct AdamwLane {
    double lr, weight_decay, beta1, beta2, eps;
};

// What a lane brings to each element of one step.
struct AdamwCoefficients {
    float clip, beta1_rest, beta2, beta2_rest, second_scale, eps, step_size, shrink;
};

// Update t >= 1 with the learning rate lr * factor. `clip` multiplies the gradient.
PALIMPSEST_HD inline AdamwCoefficients adamw_coefficients(const AdamwLane& lane, std::int64_t t, double clip, double factor) {
    const auto updates = static_cast<double>(t);
    const double lr = lane.lr * factor;
    const double correction1 = 1 - std::pow(lane.beta1, updates), correction2 = 1 - std::pow(lane.beta2, updates);
    return {static_cast<float>(clip),
            static_cast<float>(1 - lane.beta1),
            static_cast<float>(lane.beta2),
            static_cast<float>(1 - lane.beta2),
            static_cast<float>(1 / std::sqrt(correction2)),
            static_cast<float>(lane.eps),
            static_cast<float>(lr / correction1),
            static_cast<float>(lr * lane.weight_decay)};
}

// A function of its own where it is called from a loop that is compiled for several processors would be compiled for the oldest.
PALIMPSEST_HD inline __attribute__((always_inline)) void adamw_element(float& value, float gradient, float& first, float& second,
                                                                       const AdamwCoefficients& c) {
    const float g = gradient * c.clip;
    const float m = first + (g - first) * c.beta1_rest;
    const float v = second * c.beta2 + g * g * c.beta2_rest;
    first = m;
    second = v;
    value = (value - value * c.shrink) - c.step_size * (m / (std::sqrt(v) * c.second_scale + c.eps));
}

}  // namespace palimpsest::ops
