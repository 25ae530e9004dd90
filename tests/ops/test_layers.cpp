// Norms, convolution, rotation, gate, dropout and loss against their formulas.
#include "core/error.h"
#include "ops/layers.h"
#include "support.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/cross_entropy_loss.h>

using namespace palimpsest;
using namespace palimpsest::test;

namespace {

// Gradients of sum(f(inputs) * cotangent) against those of a formula, both by name.
void same_gradients(const Tensors& inputs, const std::function<at::Tensor(const Tensors&)>& ours,
                    const std::function<at::Tensor(const Tensors&)>& formula, double limit = 1e-12) {
    const at::Tensor a = ours(inputs), b = formula(inputs);
    CHECK(distance(a, b) < limit);
    const at::Tensor d = Random(77).normal(a.sizes().vec());
    const Tensors found = gradients(inputs, {{"y", a}}, {{"y", d}}), expected = gradients(inputs, {{"y", b}}, {{"y", d}});
    for (const auto& [name, x] : expected) {
        INFO("gradient of " << name);
        CHECK(distance(found.at(name), x) < limit);
    }
}

}  // namespace

TEST_CASE("norms and their gradients", "[layers]") {
    Random random(1);
    const Tensors x = {{"x", leaf(random.normal({2, 3, 4, 6}))},
                       {"w", leaf(random.normal({2, 1, 1, 6}))},
                       {"b", leaf(random.normal({2, 1, 1, 6}))}};
    const Tensors only = {{"x", x.at("x")}};
    same_gradients(
        only, [](const Tensors& t) { return ops::l2_norm(t.at("x"), 0.1); },
        [](const Tensors& t) { return t.at("x") / (t.at("x").square().sum(-1, true) + 0.1).sqrt(); });
    const Tensors scaled = {{"x", x.at("x")}, {"w", x.at("w")}};
    same_gradients(
        scaled, [](const Tensors& t) { return ops::rms_norm(t.at("x"), t.at("w"), 0.1); },
        [](const Tensors& t) { return t.at("w") * t.at("x") / (t.at("x").square().mean(-1, true) + 0.1).sqrt(); });
    same_gradients(
        x, [](const Tensors& t) { return ops::layer_norm(t.at("x"), t.at("w"), t.at("b"), 0.1); },
        [](const Tensors& t) {
            const at::Tensor centred = t.at("x") - t.at("x").mean(-1, true);
            return t.at("w") * centred / (centred.square().mean(-1, true) + 0.1).sqrt() + t.at("b");
        });
}

TEST_CASE("pitfall 52: norms keep small and zero vectors finite, and statistics in fp32", "[layers][pitfall]") {
    // eps stands inside the root: a vector of length 1e-4 is damped, not blown up to length one.
    const at::Tensor small = at::full({1, 1, 1, 4}, 5e-5, at::kDouble);
    CHECK(ops::l2_norm(small).square().sum().sqrt().item<double>() == Approx(1e-4 / std::sqrt(1e-8 + 1e-6)));
    at::Tensor zero = leaf(at::zeros({1, 1, 1, 4}), at::kFloat);
    ops::l2_norm(zero).sum().backward();
    CHECK(zero.grad().isfinite().all().item<bool>());
    // 64 entries of 300: their squares sum up to 5.8e6, beyond fp16.
    const at::Tensor half = at::full({1, 1, 1, 64}, 300.0, at::kHalf);
    CHECK(ops::l2_norm(half).scalar_type() == at::kHalf);
    CHECK(ops::l2_norm(half).select(-1, 0).item<double>() == Approx(0.125).epsilon(1e-3));
    CHECK(ops::rms_norm(half, at::ones({1, 1, 1, 64}), 1e-6).select(-1, 0).item<double>() == Approx(1).epsilon(1e-3));
}

TEST_CASE("short convolution equals a grouped convolution, lane by lane", "[layers]") {
    Random random(2);
    for (const std::int64_t W : {1, 2, 4, 5}) {
        for (const bool bias : {false, true}) {
            const std::int64_t R = 2, B = 3, T = 9, d = 70;  // more channels than one task of the gradient takes
            Tensors x = {{"x", leaf(random.normal({R, B, T, d}))},
                         {"k", leaf(random.normal({R, d, W}))},
                         {"s", leaf(random.normal({R, B, W - 1, d}))}};
            if (bias) x["b"] = leaf(random.normal({R, d}));
            INFO("W " << W << ", bias " << bias);
            same_gradients(
                x,
                [&](const Tensors& t) {
                    return ops::short_conv(t.at("x"), t.at("k"), bias ? t.at("b") : at::Tensor(), t.at("s")).first;
                },
                [&](const Tensors& t) {
                    std::vector<at::Tensor> lanes;
                    for (std::int64_t r = 0; r < R; ++r) {
                        const at::Tensor padded = at::cat({t.at("s")[r], t.at("x")[r]}, 1).transpose(1, 2);
                        at::Tensor y = at::conv1d(padded, t.at("k")[r].unsqueeze(1), std::nullopt, at::IntArrayRef{1},
                                                  at::IntArrayRef{0}, at::IntArrayRef{1}, d)
                                           .transpose(1, 2);
                        if (bias) y = y + t.at("b")[r];
                        lanes.push_back(y);
                    }
                    return at::stack(lanes);
                });
        }
    }
}

TEST_CASE("pitfall 15 and 16: short convolution, pieces equal the whole, however short", "[layers][pitfall]") {
    // Pieces shorter than the kernel pass part of the old state on, and its gradient with it.
    Random random(3);
    const std::int64_t T = 7, d = 5, W = 4;
    const at::Tensor dy = random.normal({2, 2, T, d}), d_state = random.normal({2, 2, W - 1, d});
    const Tensors x = {{"x", leaf(random.normal({2, 2, T, d}))},
                       {"k", leaf(random.normal({2, d, W}))},
                       {"s", leaf(random.normal({2, 2, W - 1, d}))}};
    const auto run = [&](const std::vector<std::int64_t>& lengths) {
        std::vector<at::Tensor> parts;
        at::Tensor state = x.at("s");
        std::int64_t begin = 0;
        for (const std::int64_t n : lengths) {
            const auto [y, next] = ops::short_conv(x.at("x").narrow(2, begin, n), x.at("k"), {}, state);
            parts.push_back(y);
            state = next;
            begin += n;
        }
        Result r;
        r.outputs = {{"y", at::cat(parts, 2)}, {"state", state}};
        r.gradients = gradients(x, r.outputs, {{"y", dy}, {"state", d_state}});
        return r;
    };
    const Result whole = run({T});
    CHECK(same_bits(whole.outputs.at("state"), x.at("x").narrow(2, T - W + 1, W - 1)));
    for (const std::vector<std::int64_t>& lengths :
         {std::vector<std::int64_t>{1, 1, 1, 1, 1, 1, 1}, {2, 2, 2, 1}, {1, 6}, {6, 1}, {3, 4}}) {
        const Result parts = run(lengths);
        for (const auto& [name, value] : whole.outputs) CHECK(distance(parts.outputs.at(name), value) < 1e-14);
        for (const auto& [name, value] : whole.gradients) {
            INFO("gradient of " << name << ", " << lengths.size() << " pieces");
            CHECK(distance(parts.gradients.at(name), value) < 1e-13);
        }
    }
    // One token: its state keeps two old inputs, whose gradient must arrive.
    const auto [y, next] = ops::short_conv(x.at("x").narrow(2, 0, 1), x.at("k"), {}, x.at("s"));
    const at::Tensor old = gradients({{"s", x.at("s")}}, {{"n", next}}, {{"n", d_state}})["s"];
    CHECK(same_bits(old.narrow(2, 1, 2), d_state.narrow(2, 0, 2)));
    CHECK(old.narrow(2, 0, 1).abs().max().item<double>() == 0);
}

TEST_CASE("pitfall 17: short convolution, strided cotangents and absent state", "[layers][pitfall]") {
    Random random(4);
    const Tensors x = {{"x", leaf(random.normal({2, 3, 6, 5}))}, {"k", leaf(random.normal({2, 5, 4}))}};
    const at::Tensor y = ops::short_conv(x.at("x"), x.at("k"), {}, {}).first;
    const at::Tensor zeros = at::zeros({2, 3, 3, 5}, at::kDouble);
    CHECK(same_bits(y, ops::short_conv(x.at("x"), x.at("k"), {}, zeros).first));
    const at::Tensor dy = random.normal({2, 3, 6, 5}), strided = dy.transpose(2, 3).contiguous().transpose(2, 3);
    CHECK_FALSE(strided.is_contiguous());
    const Tensors a = gradients(x, {{"y", y}}, {{"y", dy}});
    const Tensors b = gradients(x, {{"y", ops::short_conv(x.at("x"), x.at("k"), {}, {}).first}}, {{"y", strided}});
    for (const auto& [name, value] : a) CHECK(same_bits(b.at(name), value));
}

TEST_CASE("short convolution by operators, as other devices and half precision compute it", "[layers]") {
    Random random(8);
    const at::Tensor x = random.normal({2, 3, 9, 5}).to(at::kBFloat16), k = random.normal({2, 5, 4}).to(at::kBFloat16);
    const at::Tensor b = random.normal({2, 5}).to(at::kBFloat16), dy = random.normal({2, 3, 9, 5}).to(at::kBFloat16);
    const auto run = [&](at::ScalarType type) {
        const Tensors in = {{"x", leaf(x, type)}, {"k", leaf(k, type)}, {"b", leaf(b, type)}};
        const at::Tensor y = ops::short_conv(in.at("x"), in.at("k"), in.at("b"), {}).first;
        Tensors out = gradients(in, {{"y", y}}, {{"y", dy}});
        out["y"] = y;
        return out;
    };
    const Tensors half = run(at::kBFloat16);
    for (const auto& [name, value] : run(at::kDouble)) {
        INFO(name);
        CHECK(half.at(name).scalar_type() == at::kBFloat16);
        CHECK(distance(half.at(name), value) < 1e-2);
    }
}

TEST_CASE("rotation depends on the distance alone and follows the offset", "[layers]") {
    Random random(5);
    const at::Tensor q = random.normal({1, 2, 12, 2, 8}), k = random.normal({1, 2, 12, 2, 8});
    const at::Tensor whole = ops::rotary(q, 0);
    CHECK(distance(at::cat({ops::rotary(q.narrow(2, 0, 5), 0), ops::rotary(q.narrow(2, 5, 7), 5)}, 2), whole) < 1e-14);
    CHECK(distance(whole.square().sum(-1), q.square().sum(-1)) < 1e-14);
    const at::Tensor near = (whole * ops::rotary(k, 3)).sum(-1), far = (ops::rotary(q, 100) * ops::rotary(k, 103)).sum(-1);
    CHECK(distance(near, far) < 1e-12);
    // Features i and i + D/2 turn by t base^(-2i/D).
    const at::Tensor one = at::zeros({1, 1, 1, 8}, at::kDouble);
    one.select(-1, 1).fill_(1);
    const at::Tensor turned = ops::rotary(one, 3, 100);
    const double angle = 3 * std::pow(100, -2.0 / 8);
    CHECK(turned.select(-1, 1).item<double>() == Approx(std::cos(angle)));
    CHECK(turned.select(-1, 5).item<double>() == Approx(std::sin(angle)));
    CHECK_THROWS_WITH(ops::rotary(at::zeros({1, 4, 1, 5}), 0), "rotary positions need an even head width; this head has 5");
}

TEST_CASE("the decay gate", "[layers]") {
    Random random(6);
    const Tensors x = {{"x", leaf(random.normal({2, 3, 4, 5}))},
                       {"a", leaf(random.normal({2, 1, 1, 5}))},
                       {"b", leaf(random.normal({2, 1, 1, 5}))}};
    same_gradients(
        x, [](const Tensors& t) { return ops::mamba_log_decay(t.at("x"), t.at("a"), t.at("b")); },
        [](const Tensors& t) { return -t.at("a").exp() * (1 + (t.at("x") + t.at("b")).exp()).log(); });
    // A large pre-activation: softplus is the identity there, and half precision is widened before the bias is added.
    const at::Tensor large = at::full({1, 1, 1, 1}, 100.0, at::kBFloat16), zero = at::zeros({1, 1, 1, 1}),
                     half = at::full({1, 1, 1, 1}, 0.25);
    const at::Tensor g = ops::mamba_log_decay(large, zero, half);
    CHECK(g.scalar_type() == at::kFloat);
    CHECK(g.item<double>() == -100.25);
}

TEST_CASE("dropout is a function of seed, step, site and element", "[layers]") {
    const auto ids = [](std::vector<std::int64_t> x) {
        at::Tensor t = at::empty({static_cast<std::int64_t>(x.size())}, at::kLong);
        for (std::size_t i = 0; i < x.size(); ++i) t.mutable_data_ptr<std::int64_t>()[i] = x[i];
        return t;
    };
    const at::Tensor x = at::ones({2, 5, 7, 9}), y = ops::dropout(x, 0.25, ids({3, 4}), ids({10}), 1);
    CHECK(same_bits(y, ops::dropout(x, 0.25, ids({3, 4}), ids({10, 10}), 1)));
    CHECK_FALSE(same_bits(y, ops::dropout(x, 0.25, ids({3, 4}), ids({11}), 1)));
    CHECK_FALSE(same_bits(y, ops::dropout(x, 0.25, ids({3, 4}), ids({10}), 2)));
    CHECK_FALSE(same_bits(y[0], y[1]));
    CHECK(same_bits(y[1], ops::dropout(x.narrow(0, 1, 1), 0.25, ids({4}), ids({10}), 1)[0]));  // a lane packed is a lane alone
    CHECK(same_bits(ops::dropout(x, 0, ids({3, 4}), ids({10}), 1), x));
    // Element i is word i % 4 of block i / 4.
    const float* values = y.const_data_ptr<float>();
    for (std::uint64_t i = 0; i < 315; ++i) {
        const Philox4 block = philox(3, (4ull << 56) | (1ull << 40) | (i / 4), 10);
        CHECK(values[i] == (block.word[i % 4] < 0x40000000u ? 0.0f : 4.0f / 3.0f));
    }
    // Seeds and steps count beyond 32 bits. A GPU gives the same bits, also where a lane does not end with a block of four.
    const at::Tensor seeds = ids({-3, 0x123456789abcdef}), steps = ids({0x7fffffffffff, 5});
    const at::Tensor mask = ops::dropout_mask({2, 3, 11}, 0.3, seeds, steps, 9);
    for (std::uint64_t i = 0; i < 33; ++i) {
        const Philox4 block = philox(0x123456789abcdef, (4ull << 56) | (9ull << 40) | (i / 4), 5);
        CHECK((mask[1].view(-1)[static_cast<std::int64_t>(i)].item<float>() == 0) == (block.word[i % 4] < 1288490189u));
    }
    if (at::Context::hasCUDA()) {
        const auto there = [](const at::Tensor& t) { return t.to(at::kCUDA); };
        CHECK(same_bits(mask, ops::dropout_mask({2, 3, 11}, 0.3, there(seeds), there(steps), 9).cpu()));
        CHECK(same_bits(y, ops::dropout(there(x), 0.25, there(ids({3, 4})), there(ids({10})), 1).cpu()));
        const at::Tensor large = at::ones({3, 100003});
        CHECK(same_bits(ops::dropout(large, 0.5, ids({1, 2, 3}), ids({7}), 3),
                        ops::dropout(there(large), 0.5, there(ids({1, 2, 3})), there(ids({7})), 3).cpu()));
    }
    // Mean and rate over 400,000 elements, within five standard errors.
    const at::Tensor many = ops::dropout(at::ones({1, 400000}), 0.1, ids({8}), ids({0}), 0);
    CHECK(std::abs(many.mean().item<double>() - 1) < 5 * std::sqrt(0.1 / 0.9 / 400000));
    CHECK(std::abs(many.eq(0).to(at::kDouble).mean().item<double>() - 0.1) < 5 * std::sqrt(0.09 / 400000));
    // The gradient passes through the same mask.
    at::Tensor input = leaf(at::ones({2, 4, 8}), at::kFloat);
    const at::Tensor out = ops::dropout(input, 0.5, ids({1, 2}), ids({0}), 0);
    out.sum().backward();
    CHECK(same_bits(input.grad(), out.detach()));
}

TEST_CASE("cross-entropy of every position", "[layers]") {
    Random random(7);
    const at::Tensor targets = (random.uniform({2, 6}) * 11).to(at::kLong);
    const Tensors x = {{"x", leaf(3 * random.normal({2, 6, 11}))}};
    same_gradients(
        x, [&](const Tensors& t) { return ops::cross_entropy(t.at("x"), targets); },
        [&](const Tensors& t) {
            return at::cross_entropy_loss(t.at("x").flatten(0, 1), targets.flatten(), std::nullopt, at::Reduction::None)
                .view({2, 6});
        });
    const at::Tensor half = x.at("x").detach().to(at::kBFloat16);
    CHECK(ops::cross_entropy(half, targets).scalar_type() == at::kFloat);
    const at::Tensor extreme = at::full({1, 1, 3}, -1e30).index_fill_(2, at::zeros({1}, at::kLong), 1e30);
    CHECK(ops::cross_entropy(extreme, at::zeros({1, 1}, at::kLong)).item<double>() == 0);
}
