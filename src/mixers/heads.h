// Parts that the recurrent mixers share: projections into heads with an optional short convolution, the recurrence over a layer's
// state, and the way back out of the heads. To the recurrence, lanes and batch are one axis of sequences: N = R * B.
#pragma once

#include "core/error.h"
#include "mixers/mixer.h"

#include <cmath>
#include <string>

namespace palimpsest {

// Returns the width of one head when all heads together have `share` times the model's width. An error names `option`.
inline std::int64_t head_width(const std::string& option, double share, std::int64_t width, std::int64_t heads) {
    const double features = share * static_cast<double>(width);
    if (features > 1e12)
        fail(ExitCode::usage, "{}: {} x model.width {} are more features than any memory holds", option, share, width);
    const auto total = static_cast<std::int64_t>(std::llround(features));
    if (total < heads || total % heads != 0) {
        fail(ExitCode::usage, "{}: {} x model.width {} is {} features, which {} heads do not divide", option, share, width, total,
             heads);
    }
    return total / heads;
}

// W x, then a causal convolution of `taps` taps with SiLU (0: neither), split into heads: [R, B, T, d] -> [R * B, T, H, D].
class HeadProjection {
public:
    HeadProjection() = default;
    HeadProjection(const nn::Scope& scope, const std::string& name, std::int64_t width, std::int64_t heads, std::int64_t head,
                   std::int64_t taps)
        : name_(name), heads_(heads), head_(head), taps_(taps), linear_(scope, name, width, heads * head) {
        if (taps_ > 0) conv_ = nn::ShortConv(scope, name + "_conv", heads * head, taps);
    }

    // With `silu` false the convolution stays and the activation is left to the caller.
    at::Tensor operator()(const at::Tensor& x, State* state, bool silu = true) const {
        at::Tensor y = linear_(x);
        if (taps_ > 0) {
            y = conv_(y, state ? &(*state)["conv_" + name_] : nullptr);
            if (silu) y = at::silu(y);
        }
        return y.reshape({x.size(0) * x.size(1), x.size(2), heads_, head_});
    }

private:
    std::string name_;
    std::int64_t heads_ = 0, head_ = 0, taps_ = 0;
    nn::Linear linear_;
    nn::ShortConv conv_;
};

// Runs the recurrence from the layer's state "memory" [R, B, H, K, V], and leaves the state after the last token there.
inline at::Tensor recur(ops::RecurrenceInput input, std::int64_t lanes, State* state, ops::Backend backend) {
    if (state && (*state)["memory"].defined()) input.initial_state = (*state)["memory"].flatten(0, 1);
    const ops::RecurrenceOutput out = ops::recurrence(input, backend);
    if (state) (*state)["memory"] = out.final_state.unflatten(0, {lanes, out.final_state.size(0) / lanes});
    return out.o;
}

// Repeats a key head for `groups` value heads, as neighbours (interleaved, not tiled): [N, T, H, D] -> [N, T, H * groups, D].
inline at::Tensor repeat_heads(const at::Tensor& x, std::int64_t groups) {
    if (groups == 1) return x;
    return x.unsqueeze(3)
        .expand({x.size(0), x.size(1), x.size(2), groups, x.size(3)})
        .reshape({x.size(0), x.size(1), -1, x.size(3)});
}

enum class OutputGate { none, silu, sigmoid };
struct OutputForm {
    bool norm = true;
    double norm_eps = 1e-5;
    OutputGate gate = OutputGate::none;
    std::int64_t gate_rank = 0;  // 0: one full matrix; else two matrices of this rank, the second with a bias
};

// `HeadOutput` leaves the heads by "norm before gate": RMSNorm of every head (one weight for all), times an activated gate, W_o.
class HeadOutput {
public:
    HeadOutput() = default;
    HeadOutput(const nn::Scope& scope, std::int64_t width, std::int64_t heads, std::int64_t head, const OutputForm& form)
        : form_(form) {
        if (form.gate != OutputGate::none) {
            if (form.gate_rank > 0) gate_down_ = nn::Linear(scope, "gate_down", width, form.gate_rank);
            gate_ = nn::Linear(scope, "gate", form.gate_rank > 0 ? form.gate_rank : width, heads * head, form.gate_rank > 0);
        }
        if (form.norm) norm_ = nn::Norm(scope, "out_norm", head, NormKind::rms, form.norm_eps);
        out_ = nn::Linear(scope, "out", heads * head, width, false, nn::Role::output);
    }

    // Maps o [R * B, T, H, V] to [R, B, T, d]; the gate reads x [R, B, T, d].
    at::Tensor operator()(const at::Tensor& o, const at::Tensor& x) const {
        at::Tensor y = o.reshape({x.size(0), x.size(1), x.size(2), o.size(2), o.size(3)});
        if (form_.norm) y = norm_(y);
        y = y.flatten(3);
        if (form_.gate != OutputGate::none) {
            const at::Tensor gate = gate_(form_.gate_rank > 0 ? gate_down_(x) : x);
            y = y * (form_.gate == OutputGate::silu ? at::silu(gate) : at::sigmoid(gate));
        }
        return out_(y);
    }

private:
    OutputForm form_;
    nn::Linear gate_down_, gate_, out_;
    nn::Norm norm_;
};

}  // namespace palimpsest
