// Dropout by counter. The mask of element i of a lane is word i % 4 of Philox block i / 4 under the key `lane seed`: it needs no state,
// depends on no other lane and can be drawn again. The CPU runs core/philox.h; other devices compute the same integers with ATen.
#include "core/error.h"
#include "core/philox.h"
#include "ops/layers.h"

#include <ATen/Parallel.h>

#include <array>
#include <cmath>

namespace palimpsest::ops {

namespace {

// Counter: high = step; low = stream (8 bits), site (16), block (40).
constexpr std::int64_t counter_low(std::int64_t site) {
    return (static_cast<std::int64_t>(Stream::dropout) << 56) | (site << 40);
}

at::Tensor mask_loops(at::IntArrayRef sizes, std::int64_t threshold, const at::Tensor& seeds, const at::Tensor& step, std::int64_t site,
                      float kept) {
    at::Tensor mask = at::empty(sizes, at::TensorOptions().dtype(at::kFloat));
    const std::int64_t lanes = sizes[0], elements = mask.numel() / lanes, blocks = (elements + 3) / 4;
    const std::int64_t *seed = seeds.const_data_ptr<std::int64_t>(), *steps = step.const_data_ptr<std::int64_t>();
    const bool shared_step = step.numel() == 1;
    float* out = mask.mutable_data_ptr<float>();
    at::parallel_for(0, lanes * blocks, 4096, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
            const std::int64_t lane = i / blocks, block = i % blocks;
            const Philox4 words = philox(static_cast<std::uint64_t>(seed[lane]), static_cast<std::uint64_t>(counter_low(site) | block),
                                         static_cast<std::uint64_t>(steps[shared_step ? 0 : lane]));
            float* row = out + lane * elements;
            for (std::int64_t j = 0; j < 4 && block * 4 + j < elements; ++j) {
                row[block * 4 + j] = words.word[j] < threshold ? 0.0f : kept;
            }
        }
    });
    return mask;
}

constexpr std::int64_t low_word = 0xFFFFFFFF;

// 32 x 32 -> 64 bits in int64, where the product may wrap: the bits are the same, the high word needs a mask against the sign.
std::array<at::Tensor, 2> wide_product(const at::Tensor& x, std::int64_t factor) {
    const at::Tensor product = x * factor;
    return {product.bitwise_right_shift(32).bitwise_and_(low_word), product.bitwise_and(low_word)};
}

at::Tensor mask_operators(at::IntArrayRef sizes, std::int64_t threshold, const at::Tensor& seeds, const at::Tensor& step,
                          std::int64_t site, float kept) {
    const std::int64_t lanes = sizes[0];
    std::int64_t elements = 1;
    for (std::size_t i = 1; i < sizes.size(); ++i) elements *= sizes[i];
    const at::Tensor low = at::arange((elements + 3) / 4, seeds.options()).bitwise_or_(counter_low(site)).unsqueeze(0);
    const at::Tensor seed = seeds.view({lanes, 1}), high = step.view({-1, 1});
    at::Tensor k0 = seed.bitwise_and(low_word), k1 = seed.bitwise_right_shift(32).bitwise_and_(low_word);
    at::Tensor c0 = low.bitwise_and(low_word), c1 = low.bitwise_right_shift(32).bitwise_and_(low_word);
    at::Tensor c2 = high.bitwise_and(low_word), c3 = high.bitwise_right_shift(32).bitwise_and_(low_word);
    for (int round = 0; round < 10; ++round) {
        const auto [high0, low0] = wide_product(c0, 0xD2511F53);
        const auto [high1, low1] = wide_product(c2, 0xCD9E8D57);
        c0 = high1.bitwise_xor(c1).bitwise_xor(k0);
        c2 = high0.bitwise_xor(c3).bitwise_xor(k1);
        c1 = low1;
        c3 = low0;
        k0 = (k0 + 0x9E3779B9).bitwise_and_(low_word);
        k1 = (k1 + 0xBB67AE85).bitwise_and_(low_word);
    }
    const at::Tensor words = at::stack(at::broadcast_tensors({c0, c1, c2, c3}), -1).flatten(1).narrow(1, 0, elements);
    return words.ge(threshold).to(at::kFloat).mul_(kept).view(sizes);
}

}  // namespace

at::Tensor dropout_mask(at::IntArrayRef sizes, double p, const at::Tensor& seeds, const at::Tensor& step, std::int64_t site, bool loops) {
    PALIMPSEST_ASSERT(p > 0 && p < 1, "p {}", p);
    PALIMPSEST_ASSERT(site >= 0 && site < (1 << 16), "site {}", site);
    PALIMPSEST_ASSERT(seeds.numel() == sizes[0] && (step.numel() == 1 || step.numel() == sizes[0]), "lanes {}, seeds {}, steps {}", sizes[0],
                      seeds.numel(), step.numel());
    const auto threshold = static_cast<std::int64_t>(std::llround(p * 4294967296.0));
    const auto kept = static_cast<float>(1 / (1 - p));
    at::NoGradGuard no_grad;
    return (loops ? mask_loops : mask_operators)(sizes, threshold, seeds.contiguous(), step.contiguous(), site, kept);
}

at::Tensor dropout(const at::Tensor& x, double p, const at::Tensor& seeds, const at::Tensor& step, std::int64_t site) {
    return p == 0 ? x : x * dropout_mask(x.sizes(), p, seeds, step, site, x.is_cpu()).to(x.scalar_type());
}

}  // namespace palimpsest::ops
