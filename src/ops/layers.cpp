#include "ops/layers.h"

#include "core/error.h"

#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

namespace palimpsest::ops {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

namespace {

// Widens to fp32 at least, the least precision of statistics, gates and angles.
at::Tensor widened(const at::Tensor& x) { return x.scalar_type() == at::kDouble ? x : x.to(at::kFloat); }

// Computes y = x / sqrt(sum x^2 / n + eps); n = 1 is the L2 norm, n = d the RMS norm. Forward and backward together take five
// passes, where autograd of the formula takes about twelve.
struct Normalise : Function<Normalise> {
    static at::Tensor forward(AutogradContext* context, const at::Tensor& x, double n, double eps) {
        const at::Tensor rstd = x.square().sum(-1, true).div_(n).add_(eps).rsqrt_();
        const at::Tensor y = x * rstd;
        context->saved_data["n"] = n;
        context->save_for_backward({y, rstd});
        return y;
    }
    static variable_list backward(AutogradContext* context, variable_list gradients) {
        const variable_list saved = context->get_saved_variables();
        const at::Tensor &y = saved[0], &rstd = saved[1], &dy = gradients[0];
        const at::Tensor along = (y * dy).sum(-1, true).div_(context->saved_data["n"].toDouble());
        return {dy.addcmul(y, along, -1).mul_(rstd), {}, {}};
    }
};

// Computes the loss of each row; the gradient is softmax minus one-hot. Backward forms the softmax anew from the logits, which are
// alive anyway: on the CPU that is twice as fast as keeping the log-probabilities and taking their exp.
struct CrossEntropy : Function<CrossEntropy> {
    static at::Tensor forward(AutogradContext* context, const at::Tensor& logits, const at::Tensor& targets) {
        const at::Tensor index = targets.unsqueeze(-1);
        context->save_for_backward({logits, index});
        return at::log_softmax(logits, -1).gather(-1, index).squeeze(-1).neg_();
    }
    static variable_list backward(AutogradContext* context, variable_list gradients) {
        const variable_list saved = context->get_saved_variables();
        const at::Tensor weight = gradients[0].unsqueeze(-1);
        at::Tensor d = at::softmax(saved[0], -1).mul_(weight);
        d.scatter_add_(-1, saved[1], weight.neg());
        return {d, {}};
    }
};

}  // namespace

at::Tensor l2_norm(const at::Tensor& x, double eps) { return Normalise::apply(widened(x), 1.0, eps).to(x.scalar_type()); }

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
    const at::Tensor y = Normalise::apply(widened(x), static_cast<double>(x.size(-1)), eps);
    return (y * weight).to(x.scalar_type());
}

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps) {
    const std::int64_t width = x.size(-1);
    // With one lane ATen applies weight and bias in the same pass.
    if (weight.numel() == width && bias.numel() == width && x.scalar_type() == weight.scalar_type())
        return at::layer_norm(x, {width}, weight.reshape({width}), bias.reshape({width}), eps);
    const at::Tensor y = at::layer_norm(widened(x), {width}, {}, {}, eps);
    return at::addcmul(bias, y, weight).to(x.scalar_type());
}

at::Tensor rotary(const at::Tensor& x, std::int64_t offset, double base) {
    const std::int64_t width = x.size(-1), half = width / 2, tokens = x.size(-3);
    if (width % 2 != 0) fail(ExitCode::usage, "rotary positions need an even head width; this head has {}", width);
    const auto options = x.options().dtype(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
    const at::Tensor frequency = at::arange(half, options).mul_(-2 * std::log(base) / static_cast<double>(width)).exp_();
    const at::Tensor angle = at::arange(offset, offset + tokens, options).view({tokens, 1, 1}) * frequency;  // [T, 1, D/2]
    const at::Tensor cosine = angle.cos().to(x.scalar_type()), sine = angle.sin().to(x.scalar_type());
    const at::Tensor a = x.narrow(-1, 0, half), b = x.narrow(-1, half, half);
    return at::cat({a * cosine - b * sine, b * cosine + a * sine}, -1);
}

at::Tensor mamba_log_decay(const at::Tensor& x, const at::Tensor& a_log, const at::Tensor& dt_bias) {
    return at::softplus(widened(x) + dt_bias) * a_log.exp().neg();
}

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets) {
    return CrossEntropy::apply(widened(logits), targets);
}

}  // namespace palimpsest::ops
