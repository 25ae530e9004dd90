// GLA against its equations, written out token by token from the parameters; its size; where its gate starts.
#include "parts.h"

using namespace palimpsest;
using namespace palimpsest::conformance;

TEST_CASE("GLA fades feature by feature, then adds") {
    for (const bool gate : {true, false}) {
        Parts p({"gla", {{"gate_scale", "2"}, {"gate_rank", "3"}, {"out_gate", gate ? "true" : "false"}}, false});
        const at::Tensor x = 3 * noise({2, 20, width}, 3, at::kDouble);
        const at::Tensor q = p.heads(x, "q", 2), k = p.heads(x, "k", 2), v = p.heads(x, "v", 2);
        CHECK(q.size(3) == 4);
        CHECK(v.size(3) == 8);
        const at::Tensor logits = at::matmul(at::matmul(x, p["decay_down.weight"]), p["decay.weight"]) + p["decay.bias"];
        const at::Tensor alpha = at::sigmoid(logits).sqrt().unflatten(-1, {2, 4});
        at::Tensor S = at::zeros({2, 2, 4, 8}, x.options());
        std::vector<at::Tensor> rows;
        for (std::int64_t t = 0; t < 20; ++t) {
            S = S * alpha.select(1, t).unsqueeze(-1) + k.select(1, t).unsqueeze(-1) * v.select(1, t).unsqueeze(2);
            rows.push_back((S * q.select(1, t).unsqueeze(-1)).sum(2) / 2);  // sqrt K = 2
        }
        at::Tensor o = rms_normed(at::stack(rows, 1), p["out_norm.weight"], 1e-5).flatten(2);
        if (gate) {
            const at::Tensor z = at::matmul(x, p["gate.weight"]);
            o = o * z * at::sigmoid(z);
        }
        CHECK(within(p.forward(x), at::matmul(o, p["out.weight"]), 1e-12));
    }
}

TEST_CASE("published size and state of GLA") {
    CHECK(parameter_count("gla", 1024, {{"heads", "4"}}) == 4'219'648);
    // The published ratio: K_tot = d / 2, so the state is d / 2 numbers for each of d / H values.
    Unit unit({"gla", {{"heads", "4"}}, false}, {1}, at::kFloat);
    State state;
    const at::NoGradGuard no_grad;
    unit.mixer->forward(noise({1, 1, 3, width}, 1, at::kFloat), &state, StepContext{});
    CHECK(state["memory"].sizes() == at::IntArrayRef({1, 1, 4, width / 8, width / 4}));
    CHECK(state.bytes() == 4 * (width / 2) * (width / 4));
}

TEST_CASE("GLA: the gate is between 0 and 1, however far its logits go") {
    Parts p({"gla", {{"gate_scale", "0.01"}}, false});
    for (const double logit : {-500.0, 0.0, 500.0}) {
        p["decay.weight"].zero_();
        p["decay.bias"].fill_(logit);
        const at::Tensor y = p.forward(noise({1, 70, width}, 2, at::kDouble));
        INFO("logit " << logit);
        CHECK(y.isfinite().all().item<bool>());
    }
}

TEST_CASE("GLA refuses heads that do not divide its features") {
    CHECK(refusal({"gla", {{"heads", "3"}}, false}) ==
          "mixers.gla.expand_k: 0.5 x model.width 16 is 8 features, which 3 heads do not divide");
    CHECK_THROWS_WITH(Unit({"gla", {{"gate_scale", "0"}}, false}, {1}, at::kFloat), ContainsSubstring("mixers.gla.gate_scale"));
}
