// Small mathematics that several mixers share. Shapes are [..., d] unless another is given; lanes are the leading axis R.
#pragma once

#include "ops/tensor.h"

#include <cstdint>
#include <utility>

namespace palimpsest::ops {

// Returns x / sqrt(sum x^2 + eps) over the last axis, with eps inside the root and statistics in fp32 at least.
at::Tensor l2_norm(const at::Tensor& x, double eps = 1e-6);
// Returns w x / sqrt(mean x^2 + eps). `weight` broadcasts to x ([R, 1, 1, d] for lanes).
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);
// Returns (x - mean) / sqrt(var + eps) * weight + bias, with the biased variance.
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps);

// Depthwise causal convolution along T: y_t = bias + sum_w kernel[w] x_{t-W+1+w}, with x_{<0} from `state` (or zeros). x is [R, B,
// T, d], kernel [R, d, W], bias [R, d] or undefined, state [R, B, W-1, d] or undefined. Returns y and the new state: the last W-1
// inputs, for a sequence shorter than W-1 with the tail of the old state before them.
std::pair<at::Tensor, at::Tensor> short_conv(const at::Tensor& x, const at::Tensor& kernel, const at::Tensor& bias,
                                             const at::Tensor& state);

// Rotary embedding (Su et al. 2021): pairs (i, i + D/2), angles in fp32, x [..., T, H, D] whose first position is `offset`.
at::Tensor rotary(const at::Tensor& x, std::int64_t offset, double base = 10000);

// Returns g = -exp(a_log) softplus(x + dt_bias) in fp32 (Mamba-style gate).
at::Tensor mamba_log_decay(const at::Tensor& x, const at::Tensor& a_log, const at::Tensor& dt_bias);

// Dropout by counter: the mask depends on (seed, step, site, element of the lane) alone. seeds is [R] int64, step [1] or [R] int64,
// both on x's device; x is [R, ...]. Kept elements are divided by 1 - p. Nothing is read back to the host.
at::Tensor dropout(const at::Tensor& x, double p, const at::Tensor& seeds, const at::Tensor& step, std::int64_t site);
// Returns dropout's mask, [R, ...] of 0 and 1 / (1 - p) in fp32, on the seeds' device. A GPU gives the same bits as the CPU.
at::Tensor dropout_mask(at::IntArrayRef sizes, double p, const at::Tensor& seeds, const at::Tensor& step, std::int64_t site);

// Returns the cross-entropy of every scored position, [R, P]. logits is [R, P, V], targets [R, P] int64.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets);

}  // namespace palimpsest::ops
