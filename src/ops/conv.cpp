#include "core/error.h"
#include "ops/cpu/conv_kernel.h"
#include "ops/layers.h"
#include "ops/shape.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace palimpsest::ops {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

namespace {

bool plain_loops(const at::Tensor& x) { return x.is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble); }

constexpr std::int64_t channel_block = 64;  // channels of one thread's piece in the gradient of the taps

template <class T>
void forward_loops(const at::Tensor& padded, const at::Tensor& taps, const at::Tensor& bias, at::Tensor& y) {
    const cpu::ConvShape shape{y.size(2), y.size(3), taps.size(1)};
    const std::int64_t batch = y.size(1), in = padded.size(2) * shape.channels, out = shape.tokens * shape.channels;
    const T *x = padded.const_data_ptr<T>(), *k = taps.const_data_ptr<T>(),
            *b = bias.defined() ? bias.const_data_ptr<T>() : nullptr;
    T* result = y.mutable_data_ptr<T>();
    at::parallel_for(0, y.size(0) * batch, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t n = begin; n < end; ++n) {
            const std::int64_t lane = n / batch;
            cpu::conv_forward(shape, x + n * in, k + lane * shape.width * shape.channels, b ? b + lane * shape.channels : nullptr,
                              result + n * out);
        }
    });
}

template <class T>
void backward_loops(const at::Tensor& padded, const at::Tensor& taps, const at::Tensor& dy, at::Tensor& dpadded,
                    at::Tensor& dtaps) {
    const cpu::ConvShape shape{dy.size(2), dy.size(3), taps.size(1)};
    const std::int64_t batch = dy.size(1), in = padded.size(2) * shape.channels, out = shape.tokens * shape.channels;
    const std::int64_t kernel = shape.width * shape.channels, blocks = (shape.channels + channel_block - 1) / channel_block;
    const T *x = padded.const_data_ptr<T>(), *k = taps.const_data_ptr<T>(), *d = dy.const_data_ptr<T>();
    T *dx = dpadded.mutable_data_ptr<T>(), *dk = dtaps.mutable_data_ptr<T>();
    at::parallel_for(0, dy.size(0) * batch, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t n = begin; n < end; ++n)
            cpu::conv_backward_input(shape, k + (n / batch) * kernel, d + n * out, dx + n * in);
    });
    // A piece owns some channels of a lane and walks all its sequences in order, so threads do not change the sum.
    at::parallel_for(0, dy.size(0) * blocks, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
            const std::int64_t lane = i / blocks, first = (i % blocks) * channel_block;
            cpu::conv_backward_taps(shape, batch, first, std::min(first + channel_block, shape.channels), x + lane * batch * in,
                                    d + lane * batch * out, dk + lane * kernel);
        }
    });
}

at::Tensor tap(const at::Tensor& taps, std::int64_t w) { return taps.select(1, w).unsqueeze(1).unsqueeze(1); }

// Computes y_t = bias + sum_w kernel[w] padded_{t+w}. padded [R, B, W-1+T, d] holds the W-1 inputs before the sequence.
struct DepthwiseConv : Function<DepthwiseConv> {
    static at::Tensor forward(AutogradContext* context, const at::Tensor& padded_in, const at::Tensor& kernel,
                              const std::optional<at::Tensor>& bias_in) {
        const at::Tensor padded = padded_in.contiguous(), bias = bias_in.value_or(at::Tensor());
        const at::Tensor taps = kernel.transpose(1, 2).contiguous();  // [R, W, d]: the channels of a tap side by side
        context->save_for_backward({padded, taps});
        context->saved_data["bias"] = bias.defined();
        const std::int64_t width = taps.size(1), tokens = padded.size(2) - width + 1;
        if (plain_loops(padded)) {
            at::Tensor y = at::empty({padded.size(0), padded.size(1), tokens, padded.size(3)}, padded.options());
            const at::Tensor b = bias.defined() ? bias.contiguous() : bias;
            AT_DISPATCH_FLOATING_TYPES(padded.scalar_type(), "short_conv", [&] { forward_loops<scalar_t>(padded, taps, b, y); });
            return y;
        }
        at::Tensor y = padded.narrow(2, 0, tokens) * tap(taps, 0);
        for (std::int64_t w = 1; w < width; ++w) y.addcmul_(padded.narrow(2, w, tokens), tap(taps, w));
        if (bias.defined()) y.add_(bias.unsqueeze(1).unsqueeze(1));
        return y;
    }

    static variable_list backward(AutogradContext* context, variable_list gradients) {
        const variable_list saved = context->get_saved_variables();
        const at::Tensor &padded = saved[0], &taps = saved[1];
        const at::Tensor dy = gradients[0].contiguous();  // cotangents may have any strides
        at::Tensor dpadded, dtaps;
        if (plain_loops(padded)) {
            dpadded = at::empty_like(padded);
            dtaps = at::empty_like(taps);
            AT_DISPATCH_FLOATING_TYPES(padded.scalar_type(), "short_conv_backward",
                                       [&] { backward_loops<scalar_t>(padded, taps, dy, dpadded, dtaps); });
        } else {
            const std::int64_t tokens = dy.size(2);
            dpadded = at::zeros_like(padded);
            std::vector<at::Tensor> rows;
            for (std::int64_t w = 0; w < taps.size(1); ++w) {
                dpadded.narrow(2, w, tokens).addcmul_(dy, tap(taps, w));
                rows.push_back((dy * padded.narrow(2, w, tokens)).sum({1, 2}));
            }
            dtaps = at::stack(rows, 1);
        }
        return {dpadded, dtaps.transpose(1, 2), context->saved_data["bias"].toBool() ? dy.sum({1, 2}) : at::Tensor()};
    }
};

}  // namespace

std::pair<at::Tensor, at::Tensor> short_conv(const at::Tensor& x, const at::Tensor& kernel, const at::Tensor& bias,
                                             const at::Tensor& state) {
    PALIMPSEST_ASSERT(x.dim() == 4 && kernel.dim() == 3 && kernel.size(0) == x.size(0) && kernel.size(1) == x.size(3),
                      "x {}, kernel {}", shape_text(x), shape_text(kernel));
    const std::int64_t keep = kernel.size(2) - 1, tokens = x.size(2);
    // Padding with the state makes the rest plain calculus: what a sequence shorter than the kernel passes on keeps its gradient.
    const at::Tensor before = state.defined() ? state : at::zeros({x.size(0), x.size(1), keep, x.size(3)}, x.options());
    const at::Tensor padded = at::cat({before.to(x.scalar_type()), x}, 2);
    return {DepthwiseConv::apply(padded, kernel.to(x.scalar_type()), std::optional<at::Tensor>(bias)),
            padded.narrow(2, tokens, keep)};
}

}  // namespace palimpsest::ops
