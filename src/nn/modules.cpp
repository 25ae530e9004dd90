#include "nn/modules.h"

#include "core/error.h"
#include "ops/layers.h"
#include "ops/product.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <cmath>

namespace palimpsest::nn {
namespace {

constexpr std::int64_t thin = 8;

InitRule bias_rule(const Scope& scope, std::int64_t fan_in) {
    if (scope.model->init != Init::torch_default) return InitRule::constant(0);
    const double bound = 1 / std::sqrt(static_cast<double>(fan_in));
    return InitRule::uniform(-bound, bound);
}

// Views [R, d] as [R, 1, ..., 1, d], to broadcast over x.
at::Tensor across(const at::Tensor& weight, const at::Tensor& x) {
    std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
    shape.front() = weight.size(0);
    shape.back() = weight.size(1);
    return weight.view(shape);
}

}  // namespace

Scope Scope::sub(const std::string& name) const {
    Scope inner = *this;
    inner.prefix = prefix.empty() ? name : prefix + "." + name;
    return inner;
}

Parameter Scope::declare(const std::string& name, std::vector<std::int64_t> shape, InitRule init, Decay decay, bool trained) const {
    return parameters->declare(prefix.empty() ? name : prefix + "." + name, std::move(shape), std::move(init), decay, trained);
}

InitRule linear_rule(const Scope& scope, std::int64_t in, std::int64_t out, Role role) {
    const ModelSpec& model = *scope.model;
    const double rescale =
        role == Role::output && model.rescale_output ? 1 / std::sqrt(static_cast<double>(scope.residual_branches)) : 1;
    switch (model.init) {
        case Init::normal: return InitRule::normal(model.init_std * rescale);
        case Init::torch_default: {  // Kaiming-uniform with a = sqrt 5 is U(+-1/sqrt(fan in))
            const double bound = rescale / std::sqrt(static_cast<double>(in));
            return InitRule::uniform(-bound, bound);
        }
        case Init::xavier_small: {
            const double bound = std::pow(2, -2.5) * std::sqrt(6.0 / static_cast<double>(in + out)) * rescale;
            return InitRule::uniform(-bound, bound);
        }
    }
    PALIMPSEST_ASSERT(false, "init {}", static_cast<int>(model.init));
}

at::Tensor lane_product(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b, Precision precision) {
    if (precision != Precision::fp32) {
        const at::Tensor y = ops::rounded_product(x, w, precision);
        return b.defined() ? y + b.unsqueeze(1) : y;
    }
    if (w.size(0) == 1) {  // one lane is an ordinary product: a plain GEMM is faster than a batch of one
        const at::Tensor x0 = x.squeeze(0);
        at::Tensor w0 = w.squeeze(0);
        // For a gate of few heads MKL takes a fifth of the time, for the weight's gradient a tenth, with the long axis inside.
        if (w.is_cpu() && w.size(2) <= thin) w0 = w0.t().contiguous().t();
        return (b.defined() ? at::addmm(b.squeeze(0), x0, w0) : at::mm(x0, w0)).unsqueeze(0);
    }
    return b.defined() ? at::baddbmm(b.unsqueeze(1), x, w) : at::bmm(x, w);
}

Linear::Linear(const Scope& scope, const std::string& name, std::int64_t in, std::int64_t out, bool bias, Role role)
    : precision_(scope.precision) {
    const Scope inner = scope.sub(name);
    weight_ = inner.declare("weight", {in, out}, linear_rule(scope, in, out, role), Decay::yes);
    if (bias) bias_ = inner.declare("bias", {out}, bias_rule(scope, in), Decay::no);
}

at::Tensor Linear::operator()(const at::Tensor& x) const {
    const at::Tensor& w = *weight_;
    std::vector<std::int64_t> shape = x.sizes().vec();
    PALIMPSEST_ASSERT(x.dim() >= 3 && shape.front() == w.size(0) && shape.back() == w.size(1),
                      "{} lanes and {} features meet a weight of {} lanes and {} inputs", shape.front(), shape.back(), w.size(0),
                      w.size(1));
    shape.back() = w.size(2);
    return lane_product(x.reshape({w.size(0), -1, w.size(1)}), w, bias_ ? *bias_ : at::Tensor(), precision_).view(shape);
}

Norm::Norm(const Scope& scope, const std::string& name, std::int64_t width, NormKind kind, double eps) : kind_(kind), eps_(eps) {
    const Scope inner = scope.sub(name);
    weight_ = inner.declare("weight", {width}, InitRule::constant(1), Decay::no);
    if (kind == NormKind::layer) bias_ = inner.declare("bias", {width}, InitRule::constant(0), Decay::no);
}

at::Tensor Norm::operator()(const at::Tensor& x) const {
    const at::Tensor weight = across(*weight_, x);
    return kind_ == NormKind::layer ? ops::layer_norm(x, weight, across(*bias_, x), eps_) : ops::rms_norm(x, weight, eps_);
}

ShortConv::ShortConv(const Scope& scope, const std::string& name, std::int64_t width, std::int64_t taps, bool bias) {
    const Scope inner = scope.sub(name);
    const double bound = 1 / std::sqrt(static_cast<double>(taps));  // depthwise: the fan-in is the number of taps
    kernel_ = inner.declare("kernel", {width, taps}, InitRule::uniform(-bound, bound), Decay::yes);
    if (bias) bias_ = inner.declare("bias", {width}, InitRule::uniform(-bound, bound), Decay::no);
}

at::Tensor ShortConv::operator()(const at::Tensor& x, at::Tensor* state) const {
    auto [y, tail] = ops::short_conv(x, *kernel_, bias_ ? *bias_ : at::Tensor(), state ? *state : at::Tensor());
    if (state) *state = tail.clone(at::MemoryFormat::Contiguous);  // a view would keep the whole sequence alive
    return y;
}

FeedForward::FeedForward(const Scope& scope, std::int64_t width, Mlp kind, double expansion) : kind_(kind) {
    const std::int64_t inner = std::max<std::int64_t>(1, std::llround(expansion * static_cast<double>(width)));
    const bool gated = kind == Mlp::swiglu;
    up_ = Linear(scope, "up", width, gated ? 2 * inner : inner, !gated);
    down_ = Linear(scope, "down", inner, width, !gated, Role::output);
}

at::Tensor FeedForward::operator()(const at::Tensor& x) const {
    at::Tensor h = up_(x);
    if (kind_ == Mlp::gelu) return down_(at::gelu(h));
    const std::vector<at::Tensor> halves = h.chunk(2, -1);
    return down_(at::silu(halves[0]) * halves[1]);
}

}  // namespace palimpsest::nn
