// Matrix products whose operands are rounded for the GPU's matrix units, and nothing else: sums are taken in fp32, and results are
// not rounded. The precision of the process stays fp32, so a recurrence, its solve and an attention never see it.
#pragma once

#include "config/spec.h"
#include "ops/tensor.h"

namespace palimpsest::ops {

// x [R, M, K] times w [R, K, N] -> [R, M, N] in x's type. The operands of this product, and of the two products of its backward,
// are rounded to bf16 (8 bits) or by the GPU to tf32 (11 bits); on a CPU tf32 is fp32.
at::Tensor rounded_product(const at::Tensor& x, const at::Tensor& w, Precision precision);

}  // namespace palimpsest::ops
