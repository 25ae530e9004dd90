// Kimi Delta Attention against its equations, written out token by token from the parameters; its sizes; what it reduces to.
#include "mixers/gates.h"
#include "parts.h"

using namespace palimpsest;
using namespace palimpsest::conformance;

namespace {

// S = alpha S; S += beta k (v - S^T k)^T; o = S^T q / sqrt K. q, k, alpha [B, T, H, K], v [B, T, H, V], beta [B, T, H].
at::Tensor faded_delta_rule(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& beta,
                            const at::Tensor& alpha) {
    at::Tensor S = at::zeros({q.size(0), q.size(2), q.size(3), v.size(3)}, q.options());
    std::vector<at::Tensor> o;
    for (std::int64_t t = 0; t < q.size(1); ++t) {
        const auto now = [t](const at::Tensor& x) { return x.select(1, t); };
        S = S * now(alpha).unsqueeze(-1);
        const at::Tensor old = (S * now(k).unsqueeze(-1)).sum(2);
        S = S + now(k).unsqueeze(-1) * (now(beta).unsqueeze(-1) * (now(v) - old)).unsqueeze(2);
        o.push_back((S * now(q).unsqueeze(-1)).sum(2) / std::sqrt(static_cast<double>(q.size(3))));
    }
    return at::stack(o, 1);
}

at::Tensor soft(const at::Tensor& x) { return (1 + x.exp()).log(); }

}  // namespace

TEST_CASE("pitfall 21: KDA fades feature by feature, then replaces; value heads share the nearest key head", "[pitfall]") {
    for (const std::string gate : {"softplus", "bounded"}) {
        INFO(gate);
        Parts p({"kda",
                 {{"short_conv", "0"},
                  {"heads", "2"},
                  {"value_heads", "4"},
                  {"expand_k", "0.5"},
                  {"expand_v", "2"},
                  {"gate", gate},
                  {"lower_bound", "-3"}},
                 false});
        const at::Tensor x = 2 * noise({2, 20, width}, 6, at::kDouble);
        const auto key = [&](const std::string& name) {
            const at::Tensor y = unit_length(p.heads(x, name, 2));
            return at::stack({y.select(2, 0), y.select(2, 0), y.select(2, 1), y.select(2, 1)}, 2);
        };
        p["a_log"].copy_(0.3 * at::arange(4, x.options()));  // a rate of its own for each head
        const at::Tensor beta = at::sigmoid(p.heads(x, "beta", 4).squeeze(-1)), A = p["a_log"].exp().view({4, 1});
        const at::Tensor f = p.heads(at::matmul(x, p["rate_down.weight"]), "rate", 4) + p["dt_bias"].view({4, 4});
        const at::Tensor g = gate == "bounded" ? -3 * at::sigmoid(A * f) : -A * soft(f);
        const at::Tensor r = faded_delta_rule(key("q"), key("k"), p.heads(x, "v", 4), beta, g.exp());
        const at::Tensor z = at::matmul(at::matmul(x, p["gate_down.weight"]), p["gate.weight"]) + p["gate.bias"];
        const at::Tensor o = rms_normed(r, p["out_norm.weight"], 1e-5).flatten(2) * at::sigmoid(z);
        CHECK(within(p.forward(x), at::matmul(o, p["out.weight"]), 1e-12));
    }
}

TEST_CASE("published sizes of KDA") {
    CHECK(parameter_count("kda", 2048, {{"heads", "16"}}) == 17'887'376);
    CHECK(parameter_count("kda", 2304, {{"heads", "32"}, {"expand_k", "1.7777777777777777"}, {"expand_v", "1.7777777777777777"}}) ==
          39'518'368);
    Unit unit({"kda", {{"heads", "1"}, {"value_heads", "2"}}, false}, {1}, at::kFloat);
    State state;
    const at::NoGradGuard no_grad;
    unit.mixer->forward(noise({1, 1, 3, width}, 1, at::kFloat), &state, StepContext{});
    CHECK(state["memory"].sizes() == at::IntArrayRef({1, 1, 2, width, width / 2}));
}

TEST_CASE("KDA: its gates start where they are published to start") {
    Parts p({"kda", {{"heads", "16"}}, false});
    const at::Tensor rate = p["a_log"].exp(), dt = soft(p["dt_bias"]);
    CHECK(rate.min().item<double>() >= 1);
    CHECK(rate.max().item<double>() <= 16);
    CHECK(rate.max().item<double>() - rate.min().item<double>() > 4);
    CHECK(dt.numel() == 16);
    CHECK(dt.min().item<double>() > 0.00099);
    CHECK(dt.max().item<double>() < 0.101);
    Parts bounded({"kda", {{"heads", "16"}, {"gate", "bounded"}}, false});
    CHECK(bounded["a_log"].abs().max().item<double>() == 0);
}

TEST_CASE("pitfall 25 and 28: no decay gate lets a memory grow", "[pitfall]") {
    ModelSpec model;
    nn::Parameters parameters;
    nn::Scope scope;
    scope.parameters = &parameters;
    scope.model = &model;
    const DecayGate per_head(scope.sub("head"), "mixers.test", 3, 1, 1, 16),
        per_feature(scope.sub("feature"), "mixers.test", 3, 4, 1, 16);
    const DecayGate bounded(scope.sub("bounded"), 3, 4, -5);
    parameters.allocate({1, 2}, {1, 1}, test_device(), at::kFloat);
    for (const double far : {-1e4, -100.0, -1.0, 0.0, 1.0, 100.0, 1e4}) {
        INFO("logits about " << far);
        const at::Tensor narrow = far + noise({2, 2, 5, 3}, 1, at::kFloat), wide = far + noise({2, 2, 5, 12}, 2, at::kFloat);
        CHECK(per_head(narrow).sizes() == at::IntArrayRef({4, 5, 3}));
        CHECK(per_feature(wide).sizes() == at::IntArrayRef({4, 5, 3, 4}));
        for (const at::Tensor& g : {per_head(narrow), per_feature(wide), bounded(wide)}) {
            CHECK(g.isfinite().all().item<bool>());
            CHECK(g.max().item<double>() <= 0);
        }
        CHECK(bounded(wide).min().item<double>() >= -5);
    }
}

TEST_CASE("KDA refuses options that do not fit") {
    CHECK(refusal({"kda", {{"value_heads", "3"}, {"expand_v", "1.5"}}, false}) ==
          "mixers.kda.value_heads: 3 is no multiple of the 2 heads");
    CHECK(refusal({"kda", {{"decay_low", "20"}}, false}) == "mixers.kda.decay_low: 20 is above decay_high 16");
    CHECK(refusal({"kda", {{"heads", "3"}}, false}) ==
          "mixers.kda.expand_k: 1 x model.width 16 is 16 features, which 3 heads do not divide");
    for (const char* bound : {"0", "1", "-5.1"}) {
        CHECK_THROWS_WITH(Unit({"kda", {{"lower_bound", bound}}, false}, {1}, at::kFloat),
                          ContainsSubstring("mixers.kda.lower_bound"));
    }
}
