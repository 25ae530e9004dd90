// Modules against the formula written out, lane by lane, and the init conventions.
#include "nn/modules.h"

#include "core/error.h"

#include <ATen/ops/gelu.h>

#include <cmath>
#include <memory>

#include "catch.h"

using namespace palimpsest;
using namespace palimpsest::nn;

namespace {

// Values that repeat from call to call, in [-1, 1].
at::Tensor noise(std::vector<std::int64_t> shape, double key) {
    std::int64_t n = 1;
    for (const std::int64_t extent : shape) n *= extent;
    return at::arange(n, at::kDouble).mul(0.7123).add(key).sin().view(shape);
}

struct Fixture {
    ModelSpec model;
    Parameters parameters;
    Scope scope;
    Fixture() {
        scope.parameters = &parameters;
        scope.prefix = "m";
        scope.model = &model;
        scope.residual_branches = 4;
    }
    void allocate(std::vector<std::uint64_t> seeds) {
        parameters.allocate(seeds, std::vector<double>(seeds.size(), 1), at::Device(at::kCPU), at::kDouble);
    }
    at::Tensor leaf(const std::string& name, bool gradient = false) const {
        for (std::size_t i = 0; i < parameters.table().size(); ++i)
            if (parameters.table()[i].name == name) return gradient ? parameters.leaf(i).grad() : parameters.leaf(i).detach();
        FAIL("no parameter " << name);
        return {};
    }
};

bool near(const at::Tensor& a, const at::Tensor& b) { return a.sizes() == b.sizes() && at::allclose(a, b, 1e-12, 1e-12); }

}  // namespace

TEST_CASE("Linear multiplies every lane by its own weight") {
    for (const bool bias : {false, true}) {
        for (const std::int64_t lanes : {1, 3}) {
            Fixture f;
            f.model.init = Init::torch_default;  // non-zero biases
            const Linear linear(f.scope, "linear", 5, 7, bias);
            f.allocate(lanes == 1 ? std::vector<std::uint64_t>{4} : std::vector<std::uint64_t>{4, 5, 6});
            const at::Tensor x = noise({lanes, 2, 3, 5}, 1), y = linear(x);
            REQUIRE(y.sizes() == at::IntArrayRef({lanes, 2, 3, 7}));
            for (std::int64_t r = 0; r < lanes; ++r) {
                at::Tensor expected = at::matmul(x[r], f.leaf("m.linear.weight")[r]);
                if (bias) expected = expected + f.leaf("m.linear.bias")[r];
                CHECK(near(y[r], expected));
            }
            // strided input, as after a transpose of tokens and batch
            CHECK(near(linear(x.transpose(1, 2)), y.transpose(1, 2)));
        }
    }
}

TEST_CASE("Linear refuses what does not fit") {
    Fixture f;
    const Linear linear(f.scope, "linear", 5, 7);
    f.allocate({1, 2});
    CHECK_THROWS_WITH(linear(noise({1, 2, 3, 5}, 1)),
                      ContainsSubstring("1 lanes and 5 features meet a weight of 2 lanes and 5 inputs"));
    CHECK_THROWS_AS(linear(noise({2, 2, 3, 4}, 1)), InternalError);
}

TEST_CASE("bf16 products round their operands and nothing else, forward and backward") {
    const std::size_t lanes = GENERATE(1, 2);
    INFO(lanes << " lanes");
    Fixture f;
    f.scope.precision = Precision::bf16;
    f.model.init_std = 1;
    const Linear linear(f.scope, "linear", 5, 7, true);
    f.allocate(std::vector<std::uint64_t>(lanes, 4));
    const auto rounded = [](const at::Tensor& t) { return t.detach().to(at::kBFloat16).to(at::kDouble); };
    const auto r = static_cast<std::int64_t>(lanes);
    const at::Tensor x = noise({r, 2, 3, 5}, 1).requires_grad_(), y = linear(x), dy = noise({r, 2, 3, 7}, 2);
    const at::Tensor w = f.leaf("m.linear.weight");
    CHECK(y.scalar_type() == at::kDouble);
    // Equal to double precision: had a sum or a result been rounded to fp32 or bf16, it would show.
    CHECK(at::allclose(y, at::matmul(rounded(x), rounded(w).unsqueeze(1)), 1e-14, 1e-14));
    CHECK_FALSE(at::allclose(y, at::matmul(x, w.unsqueeze(1)), 1e-5, 1e-5));
    (y * dy).sum().backward();
    CHECK(at::allclose(x.grad(), at::matmul(rounded(dy), rounded(w).unsqueeze(1).transpose(2, 3)), 1e-14, 1e-14));
    const at::Tensor dw = at::matmul(rounded(x).flatten(1, 2).transpose(1, 2), rounded(dy).flatten(1, 2));
    CHECK(at::allclose(f.leaf("m.linear.weight", true), dw, 1e-14, 1e-14));
}

TEST_CASE("init conventions of weights, biases and output projections") {
    Fixture f;
    const std::int64_t in = 100, out = 50;
    SECTION("normal") {
        f.model.init_std = 0.02;
        const Linear inner(f.scope, "inner", in, out, true), outer(f.scope, "outer", in, out, true, Role::output);
        f.allocate({1});
        CHECK(f.leaf("m.inner.weight").square().mean().sqrt().item<double>() == Approx(0.02).epsilon(0.05));
        CHECK(f.leaf("m.outer.weight").square().mean().sqrt().item<double>() == Approx(0.01).epsilon(0.05));  // / sqrt(4 branches)
        CHECK(f.leaf("m.inner.bias").eq(0).all().item<bool>());
    }
    SECTION("torch_default") {
        f.model.init = Init::torch_default;
        const Linear inner(f.scope, "inner", in, out, true), outer(f.scope, "outer", in, out, false, Role::output);
        f.allocate({1});
        for (const auto& [name, bound] : {std::pair{"m.inner.weight", 0.1}, {"m.outer.weight", 0.05}, {"m.inner.bias", 0.1}}) {
            INFO(name);
            CHECK(f.leaf(name).abs().max().item<double>() <= bound);
            CHECK(f.leaf(name).abs().max().item<double>() > 0.9 * bound);
        }
    }
    SECTION("xavier_small") {
        f.model.init = Init::xavier_small;
        const Linear inner(f.scope, "inner", in, out, true);
        f.allocate({1});
        const double bound = std::pow(2, -2.5) * std::sqrt(6.0 / 150);
        CHECK(f.leaf("m.inner.weight").abs().max().item<double>() <= bound);
        CHECK(f.leaf("m.inner.weight").abs().max().item<double>() > 0.99 * bound);
        CHECK(f.leaf("m.inner.bias").eq(0).all().item<bool>());
    }
    SECTION("no rescale when it is off") {
        f.model.rescale_output = false;
        const Linear outer(f.scope, "outer", in, out, false, Role::output);
        f.allocate({1});
        CHECK(f.leaf("m.outer.weight").square().mean().sqrt().item<double>() == Approx(0.02).epsilon(0.05));
    }
    SECTION("what decays") {
        const Linear linear(f.scope, "linear", in, out, true);
        const Norm norm(f.scope, "norm", in, NormKind::layer, 1e-5);
        const ShortConv conv(f.scope, "conv", in, 4, true);
        for (const ParameterInfo& info : f.parameters.table()) {
            INFO(info.name);
            CHECK((info.decay == Decay::yes) == (info.shape.size() == 2));
        }
        CHECK(f.parameters.table().size() == 6);
    }
}

TEST_CASE("Norm follows its formula in every lane") {
    for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
        Fixture f;
        const Norm norm(f.scope, "norm", 6, kind, 1e-3);
        f.allocate({1, 2});
        f.parameters.values().copy_(noise({f.parameters.values().numel()}, 3));  // weights and biases that are not 1 and 0
        const at::Tensor x = noise({2, 3, 4, 6}, 1), y = norm(x);
        at::Tensor centred = kind == NormKind::layer ? x - x.mean(-1, true) : x;
        at::Tensor expected =
            centred / (centred.square().mean(-1, true) + 1e-3).sqrt() * f.leaf("m.norm.weight").view({2, 1, 1, 6});
        if (kind == NormKind::layer) expected = expected + f.leaf("m.norm.bias").view({2, 1, 1, 6});
        CHECK(near(y, expected));
    }
}

TEST_CASE("ShortConv is depthwise and causal, and continues from its state") {
    Fixture f;
    const ShortConv conv(f.scope, "conv", 5, 4, true);
    f.allocate({1, 2});
    CHECK(f.leaf("m.conv.kernel").abs().max().item<double>() <= 0.5);  // 1 / sqrt(4 taps)
    const at::Tensor x = noise({2, 3, 9, 5}, 1), y = conv(x, nullptr);
    const at::Tensor kernel = f.leaf("m.conv.kernel"), bias = f.leaf("m.conv.bias");
    for (std::int64_t t = 0; t < 9; ++t) {
        at::Tensor expected = bias.view({2, 1, 5}).expand({2, 3, 5});
        for (std::int64_t w = 0; w < 4; ++w)
            if (t - 3 + w >= 0) expected = expected + kernel.select(2, w).unsqueeze(1) * x.select(2, t - 3 + w);
        CHECK(near(y.select(2, t), expected));
    }
    for (std::int64_t split = 1; split < 9; ++split) {
        at::Tensor state;
        const at::Tensor head = conv(x.narrow(2, 0, split), &state), tail = conv(x.narrow(2, split, 9 - split), &state);
        CHECK(near(at::cat({head, tail}, 2), y));
        CHECK(near(state, x.narrow(2, 6, 3)));
    }
}

TEST_CASE("FeedForward follows its formula") {
    for (const Mlp kind : {Mlp::gelu, Mlp::swiglu}) {
        Fixture f;
        f.model.init_std = 0.5;
        const FeedForward mlp(f.scope, 6, kind, 1.5);
        f.allocate({1, 2});
        f.parameters.values().copy_(noise({f.parameters.values().numel()}, 3));
        const at::Tensor x = noise({2, 3, 4, 6}, 1), y = mlp(x);
        for (std::int64_t r = 0; r < 2; ++r) {
            const at::Tensor up = at::matmul(x[r], f.leaf("m.up.weight")[r]), down = f.leaf("m.down.weight")[r];
            if (kind == Mlp::gelu) {
                REQUIRE(up.size(-1) == 9);
                CHECK(near(y[r], at::matmul(at::gelu(up + f.leaf("m.up.bias")[r]), down) + f.leaf("m.down.bias")[r]));
            } else {
                REQUIRE(up.size(-1) == 18);
                CHECK(near(y[r], at::matmul(at::silu(up.narrow(-1, 0, 9)) * up.narrow(-1, 9, 9), down)));
            }
        }
    }
}
