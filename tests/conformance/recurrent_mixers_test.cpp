// The recurrent mixers against their equations, written out token by token from the parameters; their sizes; their refusals.
#include "parts.h"

#include <functional>

using namespace palimpsest;
using namespace palimpsest::conformance;

namespace {

// S = alpha S; S += beta k (v - S^T k)^T; o = S^T q / sqrt K. q, k [B, T, H, K], v [B, T, H, V], beta and alpha [B, T, H].
at::Tensor delta_rule(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& beta,
                      const at::Tensor& alpha) {
    at::Tensor S = at::zeros({q.size(0), q.size(2), q.size(3), v.size(3)}, q.options());
    std::vector<at::Tensor> o;
    for (std::int64_t t = 0; t < q.size(1); ++t) {
        const auto now = [t](const at::Tensor& x) { return x.select(1, t); };
        S = S * now(alpha).unsqueeze(-1).unsqueeze(-1);
        const at::Tensor old = (S * now(k).unsqueeze(-1)).sum(2);
        S = S + now(k).unsqueeze(-1) * (now(beta).unsqueeze(-1) * (now(v) - old)).unsqueeze(2);
        o.push_back((S * now(q).unsqueeze(-1)).sum(2) / std::sqrt(static_cast<double>(q.size(3))));
    }
    return at::stack(o, 1);
}

}  // namespace

TEST_CASE("linear attention is its sum over the past, for every feature map") {
    const std::map<std::string, std::function<at::Tensor(const at::Tensor&)>> maps = {
        {"elu1", [](const at::Tensor& x) { return at::where(x > 0, x + 1, x.exp()); }},
        {"relu", [](const at::Tensor& x) { return x.clamp_min(0); }},
        {"exp", [](const at::Tensor& x) { return x.exp(); }},
        {"identity", [](const at::Tensor& x) { return x; }}};
    for (const auto& [name, phi] : maps) {
        INFO(name);
        const bool normalise = name != "identity";
        Parts p({"linear",
                 {{"feature_map", name},
                  {"normalise", normalise ? "true" : "false"},
                  {"short_conv", "0"},
                  {"out_norm", "false"},
                  {"eps", "1e-30"}},
                 false});
        const at::Tensor x = noise({2, 30, width}, 3, at::kDouble).to(test_device());
        const at::Tensor q = phi(p.heads(x, "q", 2)).transpose(1, 2), k = phi(p.heads(x, "k", 2)).transpose(1, 2);
        const at::Tensor weight = at::matmul(q, k.transpose(-1, -2)).tril(), v = p.heads(x, "v", 2).transpose(1, 2);
        const at::Tensor sum = normalise ? weight.sum(-1, true) + 1e-30 : at::full({1}, std::sqrt(8.0), x.options());
        const at::Tensor o = at::matmul(weight, v) / sum;
        CHECK(within(p.forward(x), at::matmul(o.transpose(1, 2).flatten(2), p["out.weight"]), 1e-12));
    }
}

TEST_CASE("linear attention: exp is exact where e^x overflows") {
    // Keys near 800, rising and falling: the largest so far moves, then stays behind. An offset of all features of a key is a
    // weight of its token.
    Parts p({"linear", {{"feature_map", "exp"}, {"short_conv", "0"}, {"out_norm", "false"}, {"eps", "1e-30"}}, false});
    p["k.weight"][0].fill_(1);
    const at::Tensor x = noise({2, 40, width}, 4, at::kDouble).to(test_device()), t = at::arange(40, x.options());
    x.select(-1, 0).copy_(800 + at::where(t < 20, t, 40 - t) * 0.7);
    const at::Tensor q = p.heads(x, "q", 2).transpose(1, 2), k = p.heads(x, "k", 2).transpose(1, 2),
                     v = p.heads(x, "v", 2).transpose(1, 2);
    const at::Tensor logits = at::logsumexp(q.unsqueeze(3) + k.unsqueeze(2), -1);  // log of phi(q_t) . phi(k_j)
    const at::Tensor later = at::ones({40, 40}, x.options().dtype(at::kBool)).triu(1);
    const at::Tensor o = at::matmul(at::softmax(logits.masked_fill(later, -INFINITY), -1), v);
    CHECK(within(p.forward(x), at::matmul(o.transpose(1, 2).flatten(2), p["out.weight"]), 1e-10));
}

TEST_CASE("DeltaNet is the delta rule") {
    for (const bool gate : {false, true}) {
        Parts p({"delta", {{"short_conv", "0"}, {"out_gate", gate ? "true" : "false"}, {"negative_eigenvalues", "true"}}, false});
        const at::Tensor x = noise({2, 20, width}, 5, at::kDouble).to(test_device());
        const auto key = [&](const std::string& name) {
            const at::Tensor y = p.heads(x, name, 2);
            return unit_length(y * at::sigmoid(y));
        };
        const at::Tensor beta = 2 * at::sigmoid(p.heads(x, "beta", 2).squeeze(-1));
        const at::Tensor r = delta_rule(key("q"), key("k"), p.heads(x, "v", 2), beta, at::ones_like(beta));
        at::Tensor o = rms_normed(r, p["out_norm.weight"], 1e-5).flatten(2);
        if (gate) {
            const at::Tensor z = at::matmul(x, p["gate.weight"]);
            o = o * z * at::sigmoid(z);
        }
        CHECK(within(p.forward(x), at::matmul(o, p["out.weight"]), 1e-12));
    }
}

TEST_CASE("Gated DeltaNet fades, then replaces; value heads share the nearest key head") {
    Parts p({"gated_delta",
             {{"short_conv", "0"}, {"heads", "2"}, {"value_heads", "4"}, {"expand_k", "0.5"}, {"expand_v", "2"}},
             false});
    const at::Tensor x = noise({2, 20, width}, 6, at::kDouble).to(test_device());
    const auto key = [&](const std::string& name) {
        const at::Tensor y = unit_length(p.heads(x, name, 2));
        return at::stack({y.select(2, 0), y.select(2, 0), y.select(2, 1), y.select(2, 1)}, 2);
    };
    const at::Tensor beta = at::sigmoid(p.heads(x, "beta", 4).squeeze(-1));
    const at::Tensor g = -p["a_log"].exp() * (1 + (p.heads(x, "rate", 4).squeeze(-1) + p["dt_bias"]).exp()).log();
    const at::Tensor r = delta_rule(key("q"), key("k"), p.heads(x, "v", 4), beta, g.exp());
    const at::Tensor z = at::matmul(x, p["gate.weight"]);
    const at::Tensor o = rms_normed(r, p["out_norm.weight"], 1e-5).flatten(2) * z * at::sigmoid(z);
    CHECK(within(p.forward(x), at::matmul(o, p["out.weight"]), 1e-12));
}

TEST_CASE("published sizes of the delta mixers") {
    CHECK(parameter_count("delta", 1024, {{"heads", "4"}}) == 4'210'944);
    CHECK(parameter_count("gated_delta", 2048, {{"heads", "6"}, {"expand_k", "0.75"}, {"expand_v", "1.5"}}) == 25'215'500);
    // K_tot = V_tot = d, no convolutions: four projections and the norm of a head.
    CHECK(parameter_count("linear", 64, {{"heads", "2"}, {"short_conv", "0"}}) == 4 * 64 * 64 + 32);
}

TEST_CASE("gates start where the papers start them") {
    Parts p({"gated_delta", {{"heads", "16"}, {"expand_k", "1"}, {"expand_v", "1"}}, false});
    const at::Tensor rate = p["a_log"].exp(), dt = (1 + p["dt_bias"].exp()).log();
    CHECK(rate.min().item<double>() >= 1e-4);
    CHECK(rate.max().item<double>() <= 16);
    CHECK(rate.max().item<double>() > 4);
    CHECK(dt.min().item<double>() > 0.00099);
    CHECK(dt.max().item<double>() < 0.101);
}

TEST_CASE("recurrent mixers refuse options that do not fit") {
    CHECK(refusal({"linear", {{"feature_map", "identity"}}, false}) ==
          "mixers.linear.normalise: the sum of feature_map identity changes its sign; set normalise: false");
    CHECK(refusal({"linear", {{"feature_map", "exp"}, {"normalise", "false"}}, false}) ==
          "mixers.linear.normalise: feature_map exp is only safe when its scale cancels; set normalise: true");
    CHECK(refusal({"delta", {{"qk_norm", "sum"}}, false}) ==
          "mixers.delta.qk_norm: sum needs features that are never negative; set qk_activation to relu or elu1");
    CHECK(refusal({"delta", {{"heads", "3"}}, false}) ==
          "mixers.delta.expand_k: 1 x model.width 16 is 16 features, which 3 heads do not divide");
    CHECK(refusal({"gated_delta", {{"heads", "2"}, {"value_heads", "3"}, {"expand_v", "1.5"}}, false}) ==
          "mixers.gated_delta.value_heads: 3 is no multiple of the 2 heads");
    CHECK(refusal({"gated_delta", {{"decay_low", "20"}}, false}) == "mixers.gated_delta.decay_low: 20 is above decay_high 16");
}
