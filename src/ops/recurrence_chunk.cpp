// The exact chunk form: batched products over chunks of C rows, differentiated by autograd (docs/recurrence.md has the algebra).
//
// Exponents are differences taken before exp, never larger than zero, and masked before exp: the gradient of a masked entry is then
// exactly zero, where masking the result would give 0 * inf. A decay by channel does not factor out of the products. So blocks of
// 16 rows on the diagonal use explicit pairwise differences, and blocks below take the first row of the later block as reference:
// then no row depends on a gate of its future, not even by rounding.
#include "core/error.h"
#include "ops/cpu/recurrence_kernel.h"
#include "ops/recurrence.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/diag_embed.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace palimpsest::ops {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

namespace {

constexpr std::int64_t sub_chunk = 16;
constexpr double never = -std::numeric_limits<double>::infinity();

// Solves X = (I + L)^-1 Y for strictly lower triangular L [..., C, C]. The inverse comes from forward substitution in the precision
// of the tensors, not from a series: with repeated keys and beta 2 the terms of a series grow past what fp32 can cancel. Backward
// needs two products only: dY = (I + L)^-T dX and dL = -dY X^T.
struct UnitLowerSolve : Function<UnitLowerSolve> {
    static at::Tensor forward(AutogradContext* context, const at::Tensor& lower, const at::Tensor& right) {
        const at::Tensor inverse = invert(lower);
        const at::Tensor solution = at::matmul(inverse, right);
        context->save_for_backward({inverse, solution});
        return solution;
    }
    static variable_list backward(AutogradContext* context, variable_list gradients) {
        const variable_list saved = context->get_saved_variables();
        const at::Tensor d_right = at::matmul(saved[0].transpose(-1, -2), gradients[0]);
        return {at::matmul(d_right, saved[1].transpose(-1, -2)).neg_().tril_(-1), d_right};
    }

private:
    static at::Tensor invert(const at::Tensor& lower_in) {
        const std::int64_t n = lower_in.size(-1);
        if (!lower_in.is_cpu()) {
            return at::linalg_solve_triangular(lower_in, at::eye(n, lower_in.options()).expand_as(lower_in), false, true, true);
        }
        const at::Tensor lower = lower_in.contiguous(), inverse = at::empty_like(lower);
        AT_DISPATCH_FLOATING_TYPES(lower.scalar_type(), "unit_lower_solve", [&] {
            const scalar_t* from = lower.const_data_ptr<scalar_t>();
            scalar_t* to = inverse.mutable_data_ptr<scalar_t>();
            at::parallel_for(0, lower.numel() / (n * n), 1, [&](std::int64_t begin, std::int64_t end) {
                for (std::int64_t i = begin; i < end; ++i) cpu::unit_lower_inverse(n, from + i * n * n, to + i * n * n);
            });
        });
        return inverse;
    }
};

// `Chunks` splits rows into [N, H, Z, C, width]: Z chunks, the last one padded with rows that do nothing (k = e = u = 0, g = 0).
struct Chunks {
    std::int64_t rows, C, Z;

    Chunks(std::int64_t rows_, std::int64_t chunk) : rows(rows_) {
        C = std::min(chunk, (rows + sub_chunk - 1) / sub_chunk * sub_chunk);
        Z = (rows + C - 1) / C;
    }
    at::Tensor split(const at::Tensor& x) const {  // [N, rows, H, width]
        const at::Tensor y = x.transpose(1, 2);
        const at::Tensor full = rows == Z * C ? y : at::pad(y, {0, 0, 0, Z * C - rows});
        return full.reshape({x.size(0), x.size(2), Z, C, x.size(3)});
    }
    at::Tensor join(const at::Tensor& x) const {  // back to [N, rows, H, width]
        return x.reshape({x.size(0), x.size(1), Z * C, x.size(4)}).narrow(2, 0, rows).transpose(1, 2);
    }
};

// `Pairs` are what the rows of a chunk read of each other: the matrices Aqk (j <= i) and L (j < i), [..., C, C].
struct Pairs {
    at::Tensor read, erase;
};

Pairs plain_pairs(const at::Tensor& q, const at::Tensor& k, const at::Tensor& e) {
    const at::Tensor kt = k.transpose(-1, -2);
    return {at::matmul(q, kt).tril(), e.defined() ? at::matmul(e, kt).tril(-1) : e};
}

// The weight 1 of a row's own key is a constant below. As exp(G_i - G_i) it would give G two gradients that cancel only to
// rounding, and under strong decay that rounding is larger than the gradient itself.

Pairs scalar_pairs(const at::Tensor& q, const at::Tensor& k, const at::Tensor& e, const at::Tensor& G) {
    const std::int64_t C = k.size(-2);
    const at::Tensor square = at::ones({C, C}, G.options().dtype(at::kBool));
    const at::Tensor otherwise = at::zeros({C, C}, G.options()).masked_fill_(square.triu(1), never);  // 1 on the diagonal, 0 above
    const at::Tensor weight = at::where(square.tril(-1), G - G.transpose(-1, -2), otherwise).exp(), kt = k.transpose(-1, -2);
    return {at::matmul(q, kt) * weight, e.defined() ? (at::matmul(e, kt) * weight).tril(-1) : e};
}

Pairs channel_pairs(const at::Tensor& q, const at::Tensor& k, const at::Tensor& e, const at::Tensor& G) {
    const std::int64_t C = k.size(-2), K = k.size(-1), blocks = C / sub_chunk;
    const auto shaped = [&](std::initializer_list<std::int64_t> tail) {
        std::vector<std::int64_t> sizes(k.sizes().begin(), k.sizes().end() - 2);
        sizes.insert(sizes.end(), tail);
        return sizes;
    };
    const auto in_blocks = [&](const at::Tensor& x) { return x.reshape(shaped({blocks, sub_chunk, K})); };
    // The readers are q, and e when there is an erase, side by side: [..., blocks, E, 16, K].
    const at::Tensor Gb = in_blocks(G), first = Gb.narrow(-2, 0, 1), kb = in_blocks(k);
    const at::Tensor readers = e.defined() ? at::stack({in_blocks(q), in_blocks(e)}, -3) : in_blocks(q).unsqueeze(-3);
    const std::int64_t E = readers.size(-3);
    // masked_exp gives exp(x), and 0 where the mask is minus infinity. It works in place on the largest tensors of this form.
    const auto masked_exp = [](const at::Tensor& x, const at::Tensor& mask) { return x.add_(mask).exp_(); };

    // Blocks below the diagonal use exp(G_i - G_first) exp(G_first - G_j), whose factors are both at most one.
    const at::Tensor row = at::arange(C, G.options().dtype(at::kLong)), start = row.view({blocks, sub_chunk, 1}).narrow(1, 0, 1);
    const at::Tensor before = at::zeros({blocks, C, 1}, G.options()).masked_fill_(row.view({1, C, 1}) >= start, never);
    const at::Tensor keys = k.unsqueeze(-3) * masked_exp(first - G.unsqueeze(-3), before);    // [..., blocks, C, K]
    const at::Tensor decayed = (readers * (Gb - first).exp().unsqueeze(-3)).flatten(-3, -2);  // [..., blocks, E * 16, K]
    const at::Tensor below = at::matmul(decayed, keys.transpose(-1, -2)).reshape(shaped({blocks, E, sub_chunk, blocks, sub_chunk}));

    // Blocks on the diagonal give every pair of rows an exponent of its own.
    const at::Tensor earlier = at::full({sub_chunk, sub_chunk}, never, G.options()).triu_().unsqueeze(-1);
    const at::Tensor pairs =
        kb.unsqueeze(-3) * masked_exp(Gb.unsqueeze(-2) - Gb.unsqueeze(-3), earlier);         // [..., blocks, 16 i, 16 j, K]
    const at::Tensor diagonal = at::matmul(pairs, readers.movedim(-3, -1)).movedim(-1, -3);  // [..., blocks, E, 16 i, 16 j]

    const at::Tensor place = at::eye(blocks, G.options()).view({blocks, 1, 1, blocks, 1});
    const at::Tensor all = (below + diagonal.unsqueeze(-2) * place).transpose(-5, -4).reshape(shaped({E, C, C}));
    // A row reads its own key undecayed.
    return {all.select(-3, 0) + at::diag_embed((q * k).sum(-1)), E == 2 ? all.select(-3, 1) : at::Tensor()};
}

}  // namespace

RecurrenceOutput recurrence_chunk(const RecurrenceInput& in, bool with_residual) {
    const std::int64_t M = in.micro_steps, N = in.q.size(0), T = in.q.size(1), H = in.q.size(2), K = in.q.size(3), V = in.u.size(3);
    const Chunks chunks(T * M, in.chunk);
    const std::int64_t Z = chunks.Z;
    // Only the last micro-step of a token is read.
    at::Tensor q = in.q * in.scale;
    if (M > 1) q = at::pad(q.unsqueeze(2), {0, 0, 0, 0, M - 1, 0}).reshape({N, T * M, H, K});
    q = chunks.split(q);
    const at::Tensor k = chunks.split(in.k), u = chunks.split(in.u), e = in.e.defined() ? chunks.split(in.e) : in.e;

    Pairs pairs;
    at::Tensor q_in = q, k_out = k, e_in = e,
               decay;  // rows as they read the state that enters the chunk, and as they reach the state that leaves it
    if (!in.log_decay.defined()) {
        pairs = plain_pairs(q, k, e);
    } else {
        const bool channel = in.log_decay.dim() == 4;
        const at::Tensor G = chunks.split(channel ? in.log_decay : in.log_decay.unsqueeze(-1)).cumsum(-2);  // [N, H, Z, C, K or 1]
        pairs = channel ? channel_pairs(q, k, e, G) : scalar_pairs(q, k, e, G);
        const at::Tensor last = G.narrow(-2, chunks.C - 1, 1), grown = G.exp();
        q_in = q * grown;
        if (e.defined()) e_in = e * grown;
        // The last live row leaves its chunk undecayed, by a constant again, not by exp(G_i - G_i).
        const at::Tensor row = at::arange(Z * chunks.C, G.options().dtype(at::kLong)).view({Z, chunks.C, 1});
        const at::Tensor end = at::arange(1, Z + 1, row.options()).mul_(chunks.C).clamp_max_(chunks.rows).view({Z, 1, 1});
        k_out = k * at::where(row < end - 1, last - G, at::Scalar(0.0)).exp();
        decay = last.exp().transpose(-1, -2);  // [N, H, Z, K or 1, 1]
    }

    // R = U' - W S_0 with (I + L) [U', W] = [U, E e^G].
    at::Tensor own = u, seen;
    if (e.defined()) {
        const at::Tensor solved = UnitLowerSolve::apply(pairs.erase, at::cat({u, e_in}, -1));
        own = solved.narrow(-1, 0, V);
        seen = solved.narrow(-1, V, K);
    }
    const at::Tensor outward = k_out.transpose(-1, -2);
    at::Tensor state = in.initial_state.defined() ? in.initial_state : at::zeros({N, H, K, V}, in.q.options());
    std::vector<at::Tensor> states, residuals;
    const std::vector<at::Tensor> decays = decay.defined() ? decay.unbind(2) : std::vector<at::Tensor>();
    const auto owns = own.unbind(2), outwards = outward.unbind(2);
    const std::vector<at::Tensor> seens = seen.defined() ? seen.unbind(2) : std::vector<at::Tensor>();
    for (std::int64_t i = 0; i < Z; ++i) {
        const auto z = static_cast<std::size_t>(i);
        states.push_back(state);
        const at::Tensor r = seens.empty() ? owns[z] : owns[z] - at::matmul(seens[z], state);
        residuals.push_back(r);
        state = (decays.empty() ? state : state * decays[z]) + at::matmul(outwards[z], r);
    }
    const at::Tensor r = at::stack(residuals, 2);
    at::Tensor o = chunks.join(at::matmul(q_in, at::stack(states, 2)) + at::matmul(pairs.read, r));
    if (M > 1) o = o.reshape({N, T, M, H, V}).select(2, M - 1);
    return {o, state, with_residual ? chunks.join(r) : at::Tensor()};
}

}  // namespace palimpsest::ops
