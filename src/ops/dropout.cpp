// Dropout by counter. The mask of element i of a lane is word i % 4 of Philox block i / 4 under the key `lane seed`. It needs no
// state, depends on no other lane and can be drawn again. Host and GPU both run core/philox.h.
#include "ops/cuda/dropout.h"

#include "core/error.h"
#include "core/philox.h"
#include "ops/cuda/stream.h"
#include "ops/layers.h"

#include <ATen/Parallel.h>

#include <cmath>

namespace palimpsest::ops {

namespace {

// The counter's high word is the step; its low word holds stream (8 bits), site (16) and block (40).
constexpr std::int64_t counter_low(std::int64_t site) { return (static_cast<std::int64_t>(Stream::dropout) << 56) | (site << 40); }

at::Tensor mask_loops(at::IntArrayRef sizes, std::int64_t threshold, const at::Tensor& seeds, const at::Tensor& step,
                      std::int64_t site, float kept) {
    at::Tensor mask = at::empty(sizes, at::TensorOptions().dtype(at::kFloat));
    const std::int64_t lanes = sizes[0], elements = mask.numel() / lanes, blocks = (elements + 3) / 4;
    const std::int64_t *seed = seeds.const_data_ptr<std::int64_t>(), *steps = step.const_data_ptr<std::int64_t>();
    const bool shared_step = step.numel() == 1;
    float* out = mask.mutable_data_ptr<float>();
    at::parallel_for(0, lanes * blocks, 4096, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
            const std::int64_t lane = i / blocks, block = i % blocks;
            const Philox4 words =
                philox(static_cast<std::uint64_t>(seed[lane]), static_cast<std::uint64_t>(counter_low(site) | block),
                       static_cast<std::uint64_t>(steps[shared_step ? 0 : lane]));
            float* row = out + lane * elements;
            for (std::int64_t j = 0; j < 4 && block * 4 + j < elements; ++j) {
                row[block * 4 + j] = words.word[j] < threshold ? 0.0f : kept;
            }
        }
    });
    return mask;
}

at::Tensor mask_on_device(at::IntArrayRef sizes, std::int64_t threshold, const at::Tensor& seeds, const at::Tensor& step,
                          std::int64_t site, float kept) {
    PALIMPSEST_ASSERT(dropout_kernel != nullptr, "dropout on {} in a build without CUDA", seeds.device().str());
    at::Tensor mask = at::empty(sizes, seeds.options().dtype(at::kFloat));
    if (const char* error = dropout_kernel(mask.mutable_data_ptr<float>(), sizes[0], mask.numel() / sizes[0],
                                           seeds.const_data_ptr<std::int64_t>(), step.const_data_ptr<std::int64_t>(),
                                           step.numel() == 1, counter_low(site), threshold, kept, default_stream(seeds.device())))
        fail(ExitCode::run_failed, "dropout on the GPU: {}", error);
    return mask;
}

}  // namespace

at::Tensor dropout_mask(at::IntArrayRef sizes, double p, const at::Tensor& seeds, const at::Tensor& step, std::int64_t site) {
    PALIMPSEST_ASSERT(p > 0 && p < 1, "p {}", p);
    PALIMPSEST_ASSERT(site >= 0 && site < (1 << 16), "site {}", site);
    PALIMPSEST_ASSERT(seeds.numel() == sizes[0] && (step.numel() == 1 || step.numel() == sizes[0]), "lanes {}, seeds {}, steps {}",
                      sizes[0], seeds.numel(), step.numel());
    const auto threshold = static_cast<std::int64_t>(std::llround(p * 4294967296.0));
    const auto kept = static_cast<float>(1 / (1 - p));
    at::NoGradGuard no_grad;
    return (seeds.is_cpu() ? mask_loops : mask_on_device)(sizes, threshold, seeds.contiguous(), step.contiguous(), site, kept);
}

at::Tensor dropout(const at::Tensor& x, double p, const at::Tensor& seeds, const at::Tensor& step, std::int64_t site) {
    return p == 0 ? x : x * dropout_mask(x.sizes(), p, seeds, step, site).to(x.scalar_type());
}

}  // namespace palimpsest::ops
