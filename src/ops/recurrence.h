// One family of recurrences, S_t = (I - k_t e_t^T) Diag(alpha_t) S_{t-1} + k_t u_t^T, in three forms behind one function.
//
//     S~_t = Diag(exp g_t) S_{t-1}        decay, then
//     r_t  = u_t - S~_t^T e_t             read for the error ("forget before error"), then
//     S_t  = S~_t + k_t r_t^T             write, then
//     o_t  = scale * S_t^T q_t            read for the output
//
// Linear attention has e = 0 and u = v. DeltaNet has e = beta k and u = beta v (Yang et al. 2024, "Parallelizing linear
// transformers with the delta rule", eq. 4). Gated DeltaNet adds a scalar g (Yang et al. 2024, "Gated delta networks", eq. 10); KDA
// and GLA have a g for each channel.
#pragma once

#include "ops/tensor.h"

#include <cstdint>

namespace palimpsest::ops {

enum class Backend {
    automatic,  // the faster of reference and chunk for the sizes and the device; each choice is logged once
    reference,  // token by token, fp32 or fp64, hand-written adjoint: the oracle
    chunk,      // batched GEMMs over chunks of 64, autograd
    fused,      // hand kernels (not built yet: choosing it is an error)
};

// Sizes: N sequences (lanes * batch), H heads, T tokens, K key and V value features, M micro-steps a token (rows of k, e, u, g).
struct RecurrenceInput {
    at::Tensor q;              // [N, T, H, K]
    at::Tensor k;              // [N, T*M, H, K]
    at::Tensor u;              // [N, T*M, H, V]
    at::Tensor e;              // [N, T*M, H, K], or undefined: no erase (e = 0)
    at::Tensor log_decay;      // [N, T*M, H] (scalar), [N, T*M, H, K] (channel), natural log, <= 0; or undefined: no decay
    at::Tensor initial_state;  // [N, H, K, V] fp32 (fp64 when q is); or undefined: zeros
    double scale = 1;          // factor of the output read; usually K^-1/2
    std::int64_t micro_steps = 1;
    std::int64_t chunk = 64;  // rows of a chunk, in the chunk form
};

struct RecurrenceOutput {
    at::Tensor o;            // [N, T, H, V]
    at::Tensor final_state;  // [N, H, K, V], differentiable
    at::Tensor residual;     // r [N, T*M, H, V], when asked for
};

// Gradients flow to every input, and from o, final_state and residual. Throws Error(usage) that names shapes which do not fit.
RecurrenceOutput recurrence(const RecurrenceInput& input, Backend backend = Backend::automatic, bool with_residual = false);

// Each function is one backend's own form, for tests and benchmarks. recurrence_rows is the reference form of other devices than
// the CPU, by ATen operators and autograd.
RecurrenceOutput recurrence_reference(const RecurrenceInput& input, bool with_residual);
RecurrenceOutput recurrence_rows(const RecurrenceInput& input, bool with_residual);
RecurrenceOutput recurrence_chunk(const RecurrenceInput& input, bool with_residual);

}  // namespace palimpsest::ops
