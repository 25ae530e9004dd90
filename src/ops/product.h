// Matrix products whose operands alone are rounded, for the GPU's matrix units: sums are taken in fp32 and results are not rounded.
// The precision of the process stays fp32, so it does not affect a recurrence, its solve or an attention.
#pragma once

#include "config/spec.h"
#include "ops/tensor.h"

namespace palimpsest::ops {

// Returns x [R, M, K] times w [R, K, N] as [R, M, N] in x's type. The operands of this product, and of the two products of its
// backward, are rounded to bf16 (8 bits) or by the GPU to tf32 (11 bits); on a CPU tf32 is fp32.
at::Tensor rounded_product(const at::Tensor& x, const at::Tensor& w, Precision precision);

}  // namespace palimpsest::ops
