// The few modules that models and mixers consist of. Each has a leading lane axis: activations are [R, B, T, d].
#pragma once

#include "config/spec.h"
#include "nn/parameters.h"

#include <string>

namespace palimpsest::nn {

// A `Scope` is where modules declare parameters, with a name prefix and the model's init convention.
struct Scope {
    Parameters* parameters = nullptr;
    std::string prefix;                     // "layers.1.mixer"
    const ModelSpec* model = nullptr;       // for the init convention
    std::int64_t residual_branches = 1;     // of the whole model, for the rescaling of output projections
    Precision precision = Precision::fp32;  // of the operands of Linear; results are never rounded

    Scope sub(const std::string& name) const;
    Parameter declare(const std::string& name, std::vector<std::int64_t> shape, InitRule init, Decay decay,
                      bool trained = true) const;
};

enum class Role { inner, output };  // output: the weight writes into the residual stream (rescaled init)

// Returns the rule for a weight's initial values under the model's convention.
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

// Returns x [R, M, in] times w [R, in, out] (+ b [R, out], or undefined), lane by lane. Only operands are rounded to `precision`.
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

class ShortConv {  // depthwise causal convolution without activation; init U(+-1/sqrt(W))
public:
    ShortConv() = default;
    ShortConv(const Scope& scope, const std::string& name, std::int64_t width, std::int64_t taps, bool bias = false);
    // `state` is [R, B, W-1, d] and is set to the new state; nullptr starts a sequence and keeps no state.
    at::Tensor operator()(const at::Tensor& x, at::Tensor* state) const;

private:
    Parameter kernel_, bias_;
};

// A `FeedForward` is the state mixer of a block, which works position by position. gelu is two products with biases; swiglu is
// (silu(x A) * x B) C. none and identity_with_norm have no module.
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
