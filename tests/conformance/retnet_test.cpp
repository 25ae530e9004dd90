// Retention against its parallel form, written out from the parameters.
#include "parts.h"

#include <cmath>

using namespace palimpsest;
using namespace palimpsest::conformance;

namespace {

// Feature i of the first half turns with feature i of the second, by position / 10000^(2i / D). x [B, T, H, D].
at::Tensor turned(const at::Tensor& x) {
    const std::int64_t length = x.size(1), half = x.size(3) / 2;
    at::Tensor out = at::empty_like(x);
    for (std::int64_t t = 0; t < length; ++t) {
        for (std::int64_t i = 0; i < half; ++i) {
            const double angle = static_cast<double>(t) * std::pow(10000, -static_cast<double>(i) / static_cast<double>(half));
            const at::Tensor a = x.select(1, t).select(-1, i), b = x.select(1, t).select(-1, half + i);
            out.select(1, t).select(-1, i).copy_(a * std::cos(angle) - b * std::sin(angle));
            out.select(1, t).select(-1, half + i).copy_(b * std::cos(angle) + a * std::sin(angle));
        }
    }
    return out;
}

// D[h, t, j] = (1 - 2^-(first + h))^(t - j) for j <= t, else 0.
at::Tensor decay_mask(std::int64_t heads, std::int64_t length, int first) {
    at::Tensor mask = at::zeros({heads, length, length}, at::kDouble);
    for (std::int64_t h = 0; h < heads; ++h) {
        for (std::int64_t t = 0; t < length; ++t) {
            for (std::int64_t j = 0; j <= t; ++j)
                mask[h][t][j] = std::pow(1 - std::pow(2.0, -first - static_cast<double>(h)), t - j);
        }
    }
    return mask;
}

}  // namespace

TEST_CASE("pitfall 41: retention is its parallel form", "[pitfall]") {
    struct Case {
        bool rotary, gate;
        int first;
    };
    for (const Case c : {Case{true, true, 5}, Case{false, true, 5}, Case{true, false, 1}}) {
        INFO("rotary " << c.rotary << ", gate " << c.gate << ", first exponent " << c.first);
        // eps too small to matter: the norm of a head takes any scale of a row away, in this form and in the recurrence
        Parts p({"retnet",
                 {{"rotary", c.rotary ? "true" : "false"},
                  {"out_gate", c.gate ? "true" : "false"},
                  {"norm_eps", "1e-37"},
                  {"decay_exponent", std::to_string(c.first)}},
                 false});
        const at::Tensor x = noise({2, 90, width}, 3, at::kDouble);
        const auto rotated = [&](const std::string& name) {
            const at::Tensor y = p.heads(x, name, 2);
            return (c.rotary ? turned(y) : y).transpose(1, 2);
        };
        const at::Tensor weight = at::matmul(rotated("q"), rotated("k").transpose(-1, -2)) / std::sqrt(8.0) *
                                  decay_mask(2, 90, c.first).to(test_device());
        const at::Tensor o = at::matmul(weight, p.heads(x, "v", 2).transpose(1, 2)).transpose(1, 2);
        at::Tensor y = rms_normed(o, p["out_norm.weight"], 1e-37).flatten(2);
        if (c.gate) {
            const at::Tensor z = at::matmul(x, p["gate.weight"]);
            y = y * z * at::sigmoid(z);
        }
        CHECK(within(p.forward(x), at::matmul(y, p["out.weight"]), 1e-12));
    }
}

TEST_CASE("retention: eight heads keep what the paper says, token after token") {
    // The state after a first token and silence is that token's, times gamma^(T - 1): x = 0 has no keys.
    Parts p({"retnet", {{"heads", "8"}}, false});
    const double kept[] = {0.96875, 0.984375, 0.9921875, 0.99609375, 0.998046875, 0.9990234375, 0.99951171875, 0.999755859375};
    at::Tensor x = at::zeros({1, 1, 11, width}, at::TensorOptions().dtype(at::kDouble).device(test_device()));
    x.select(2, 0).fill_(1);
    State first, last;
    p.unit.mixer->forward(x.narrow(2, 0, 1), &first, StepContext{});
    p.unit.mixer->forward(x, &last, StepContext{});
    for (std::int64_t h = 0; h < 8; ++h) {
        INFO("head " << h);
        REQUIRE(first["memory"][0][0][h].abs().max().item<double>() > 1e-3);
        CHECK(within(last["memory"][0][0][h], first["memory"][0][0][h] * std::pow(kept[h], 10), 1e-12));
    }
}

TEST_CASE("published size of retention; what it refuses") {
    CHECK(parameter_count("retnet", 1024, {{"heads", "8"}}) == 8'388'864);
    CHECK(refusal({"retnet", {{"heads", "16"}}, false}) ==
          "mixers.retnet.rotary: needs an even head width; 1 x model.width 16 / 16 heads is 1");
    CHECK(refusal({"retnet", {{"heads", "16"}, {"rotary", "false"}}, false}) == "no error");
    CHECK(refusal({"retnet", {{"heads", "3"}}, false}) ==
          "mixers.retnet.expand_k: 1 x model.width 16 is 16 features, which 3 heads do not divide");
    CHECK(refusal({"retnet", {{"decay_exponent", "0"}}, false}).find("mixers.retnet.decay_exponent") != std::string::npos);
}
