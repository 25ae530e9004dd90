// The decay gate of the Mamba family: log decay g = -exp(A_log) softplus(a + dt_bias), in fp32 (Gu and Dao 2023, Mamba, section
// 3.6). The "safe gate" of KDA is bounded from below: g = bound sigmoid(exp(A_log) (a + dt_bias)).
#pragma once

#include "mixers/mixer.h"
#include "ops/layers.h"

#include <algorithm>
#include <cmath>

namespace palimpsest {

// Draws dt_bias such that softplus(dt_bias) is log-uniform in [0.001, 0.1].
inline nn::InitRule time_step_rule() {
    return nn::InitRule::custom([](double uniform, std::int64_t) {
        const double dt = std::max(1e-4, std::exp(uniform * (std::log(0.1) - std::log(0.001)) + std::log(0.001)));
        return dt + std::log(-std::expm1(-dt));
    });
}

// Draws A_log such that the rate A is uniform in [low, high]. Draws near 0 are lifted, because their logarithm would run away and
// such a head could never learn to forget.
inline nn::InitRule log_rate_rule(double low, double high) {
    return nn::InitRule::custom(
        [low, high](double uniform, std::int64_t) { return std::log(std::max(1e-4, low + (high - low) * uniform)); });
}

// A `DecayGate` has a rate for each head and a time step for each of the head's `channels` features. Weight decay acts on neither.
class DecayGate {
public:
    DecayGate() = default;
    // `options` is the name of the mixer's section, for the error where low is above high.
    DecayGate(const nn::Scope& scope, const std::string& options, std::int64_t heads, std::int64_t channels, double low,
              double high)
        : heads_(heads), channels_(channels) {
        if (low > high) fail(ExitCode::usage, "{}.decay_low: {} is above decay_high {}", options, low, high);
        a_log_ = scope.declare("a_log", {heads}, log_rate_rule(low, high), nn::Decay::never);
        dt_bias_ = scope.declare("dt_bias", {heads * channels}, time_step_rule(), nn::Decay::never);
    }
    // Makes a bounded gate: g in (bound, 0), bound < 0.
    DecayGate(const nn::Scope& scope, std::int64_t heads, std::int64_t channels, double bound)
        : heads_(heads), channels_(channels), bound_(bound) {
        a_log_ = scope.declare("a_log", {heads}, nn::InitRule::constant(0), nn::Decay::never);
        dt_bias_ = scope.declare("dt_bias", {heads * channels}, time_step_rule(), nn::Decay::never);
    }

    // Maps a [R, B, T, H * channels] to g [R * B, T, H, channels], or to [R * B, T, H] where channels is 1.
    at::Tensor operator()(const at::Tensor& a) const {
        const std::int64_t lanes = a.size(0);
        const at::Tensor rates = a.unflatten(-1, {heads_, channels_}), a_log = (*a_log_).view({lanes, 1, 1, heads_, 1});
        const at::Tensor dt_bias = (*dt_bias_).view({lanes, 1, 1, heads_, channels_});
        const at::Tensor g =
            bound_ < 0 ? bound_ * at::sigmoid(a_log.exp() * (rates + dt_bias)) : ops::mamba_log_decay(rates, a_log, dt_bias);
        return channels_ == 1 ? g.flatten(3).flatten(0, 1) : g.flatten(0, 1);
    }

    // Returns the step alone, for mixers that write in proportion to it: softplus(a + dt_bias), positive, [R * B, T, H, channels].
    at::Tensor time_step(const at::Tensor& a) const {
        return at::softplus((a + (*dt_bias_).view({a.size(0), 1, 1, -1})).unflatten(-1, {heads_, channels_})).flatten(0, 1);
    }

private:
    std::int64_t heads_ = 0, channels_ = 0;
    double bound_ = 0;  // 0: no bound
    nn::Parameter a_log_, dt_bias_;
};

}  // namespace palimpsest
