// Softmax attention and BaseConv against their equations, from the parameters.
#include "ops/layers.h"
#include "parts.h"

using namespace palimpsest;
using namespace palimpsest::conformance;

TEST_CASE("softmax attention is the softmax of its scaled products, for every norm, with and without rotation") {
    for (const std::string norm : {"none", "l2", "rms"}) {
        for (const bool rotary : {false, true}) {
            INFO(norm << (rotary ? ", rotary" : ""));
            Parts p({"softmax", {{"heads", "2"}, {"qk_norm", norm}, {"bias", "true"}}, rotary});
            const std::int64_t T = 20, D = width / 2;
            const at::Tensor x = 2 * noise({2, T, width}, 3, at::kDouble);
            const at::Tensor qkv = (at::matmul(x, p["qkv.weight"]) + p["qkv.bias"]).unflatten(-1, {3, 2, D});
            const auto oriented = [&](std::int64_t which, const std::string& name) {
                at::Tensor y = qkv.select(2, which);
                if (norm == "l2") y = unit_length(y);
                if (norm == "rms") y = rms_normed(y, p[name + ".weight"], 1e-6);
                return (rotary ? ops::rotary(y, 0) : y).transpose(1, 2);  // [B, H, T, D]
            };
            if (norm == "rms") p["k_norm.weight"].copy_(at::arange(D, x.options()) / D + 0.5);
            const double root = std::sqrt(static_cast<double>(D));
            const at::Tensor logits =
                at::matmul(oriented(0, "q_norm"), oriented(1, "k_norm").transpose(-1, -2)) * (norm == "l2" ? root : 1 / root);
            const at::Tensor weight = logits.exp().tril(),
                             o = at::matmul(weight / weight.sum(-1, true), qkv.select(2, 2).transpose(1, 2));
            CHECK(within(p.forward(x), at::matmul(o.transpose(1, 2).flatten(2), p["out.weight"]) + p["out.bias"], 1e-12));
        }
    }
}

TEST_CASE("BaseConv is a convolution times a projection, plus its input") {
    for (const std::string activation : {"none", "silu"}) {
        INFO(activation);
        Parts p({"base_conv", {{"activation", activation}}, false});
        const at::Tensor x = noise({2, 20, width}, 4, at::kDouble), padded = at::pad(x, {0, 0, 2, 0});
        const at::Tensor kernel = p["conv.kernel"];  // [d, 3]
        at::Tensor mixed = p["conv.bias"].expand_as(x), gate = at::matmul(x, p["projection.weight"]) + p["projection.bias"];
        for (std::int64_t w = 0; w < 3; ++w) mixed = mixed + kernel.select(1, w) * padded.narrow(1, w, 20);
        if (activation == "silu") {
            mixed = mixed * at::sigmoid(mixed);
            gate = gate * at::sigmoid(gate);
        }
        CHECK(within(p.forward(x), mixed * gate + x, 1e-12));
    }
}
