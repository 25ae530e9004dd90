// The few modules that models and mixers are made of, each with a leading lane axis: activations [R, B, T, d].
#pragma once

#include "config/spec.h"
#include "nn/parameters.h"

#include <string>

namespace palimpsest::nn {

// Where modules declare: parameters plus a name prefix and the model's init convention.
struct Scope {
    Parameters* parameters = nullptr;
    std::string prefix;                     // "layers.1.mixer"
    const ModelSpec* model = nullptr;       // init convention (spec section 2.1)
    std::int64_t residual_branches = 1;     // of the whole model, for the output projections' rescale
    Precision precision = Precision::fp32;  // of the operands of Linear; its results are never rounded

    Scope sub(const std::string& name) const;
    Parameter declare(const std::string& name, std::vector<std::int64_t> shape, InitRule init, Decay decay,
                      bool trained = true) const;
};

enum class Role { inner, output };  // output: writes into the residual stream (rescaled init)

// Initial values of a weight under the model's convention.
InitRule linear_rule(const Scope& scope, std::int64_t in, std::int64_t out, Role role = Role::inner);

class Linear {  // y = x W (+ b), W [R, in, out]
public:
    Linear() = default;
    Linear(const Scope& scope, const std::string& name, std::int64_t in, std::int64_t out, bool bias = false,
           Role role = Role::inner);
    at::Tensor operator()(const at::Tensor& x) const;  // [R, B, T, in] -> [R, B, T, out]

private:
    Parameter weight_, bias_;
    Precision precision_ = Precision::fp32;
};

// Products of every lane: x [R, M, in] times w [R, in, out] (+ b [R, out], or undefined). Only the operands are rounded to
// `precision`.
at::Tensor lane_product(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b = {}, Precision precision = Precision::fp32);

class Norm {  // LayerNorm (with bias) or RMSNorm over the last axis, weight [R, d]
public:
    Norm() = default;
    Norm(const Scope& scope, const std::string& name, std::int64_t width, NormKind kind, double eps);
    at::Tensor operator()(const at::Tensor& x) const;  // [R, ..., d]

private:
    Parameter weight_, bias_;
    NormKind kind_ = NormKind::layer;
    double eps_ = 1e-5;
};

class ShortConv {  // depthwise causal convolution (an activation is the caller's); init U(+-1/sqrt(W))
public:
    ShortConv() = default;
    ShortConv(const Scope& scope, const std::string& name, std::int64_t width, std::int64_t taps, bool bias = false);
    // state [R, B, W-1, d], updated in place of the reference; nullptr: start of a sequence, state not kept.
    at::Tensor operator()(const at::Tensor& x, at::Tensor* state) const;

private:
    Parameter kernel_, bias_;
};

// The state mixer of a block (position by position). gelu: two products with biases; swiglu: (silu(x A) * x B) C. none and
// identity_with_norm have no module of their own.
class FeedForward {
public:
    FeedForward() = default;
    FeedForward(const Scope& scope, std::int64_t width, Mlp kind, double expansion);
    at::Tensor operator()(const at::Tensor& x) const;  // [R, B, T, d]

private:
    Linear up_, down_;
    Mlp kind_ = Mlp::gelu;
};

}  // namespace palimpsest::nn
