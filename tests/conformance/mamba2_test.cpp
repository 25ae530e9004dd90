// Mamba-2 against its recurrence, written out token by token from the parameters; where it starts; its size.
#include "parts.h"

#include <cmath>

using namespace palimpsest;
using namespace palimpsest::conformance;

namespace {

at::Tensor swish(const at::Tensor& x) { return x / (1 + (-x).exp()); }

}  // namespace

TEST_CASE("Mamba-2 is its recurrence; heads share the keys of the nearest group") {
    const std::int64_t heads = 4, groups = 2, features = 5, head = 8, inner = heads * head;
    for (const std::string taps : {"0", "3"}) {
        INFO("short_conv " << taps);
        Parts p({"mamba2", {{"heads", "4"}, {"groups", "2"}, {"state", "5"}, {"short_conv", taps}}, false});
        p["skip"].copy_(at::arange(1, 5, at::kDouble));  // heads differ
        const at::Tensor x = noise({2, 20, width}, 3, at::kDouble);
        at::Tensor xbc = at::matmul(x, p["xbc.weight"]);
        if (taps == "3") {
            const at::Tensor padded = at::cat({at::zeros({2, 2, xbc.size(2)}, x.options()), xbc}, 1);
            at::Tensor y = p["conv.bias"].expand_as(xbc);
            for (std::int64_t w = 0; w < 3; ++w) y = y + p["conv.kernel"].select(1, w) * padded.narrow(1, w, 20);
            xbc = swish(y);
        }
        const at::Tensor dt = (1 + (at::matmul(x, p["dt.weight"]) + p["dt_bias"]).exp()).log(), rate = p["a_log"].exp();
        CHECK(dt.min().item<double>() > 0);
        std::vector<at::Tensor> outputs;
        for (std::int64_t h = 0; h < heads; ++h) {
            const std::int64_t group = h / (heads / groups);
            at::Tensor S = at::zeros({2, features, head}, x.options());
            std::vector<at::Tensor> row;
            for (std::int64_t t = 0; t < 20; ++t) {
                const at::Tensor now = xbc.select(1, t), value = now.narrow(1, h * head, head), step = dt.select(1, t).select(1, h);
                const at::Tensor B = now.narrow(1, inner + group * features, features);
                const at::Tensor C = now.narrow(1, inner + (groups + group) * features, features);
                S = S * (-rate[h] * step).exp().view({2, 1, 1}) + B.unsqueeze(2) * (step.unsqueeze(1) * value).unsqueeze(1);
                row.push_back((S * C.unsqueeze(2)).sum(1) + p["skip"][h] * value);
            }
            outputs.push_back(at::stack(row, 1));
        }
        // the gate comes before the norm, and the norm is a group's
        const at::Tensor gated = at::stack(outputs, 2).flatten(2) * swish(at::matmul(x, p["z.weight"]));
        const at::Tensor weight = p["out_norm.weight"].view({groups, -1});
        const at::Tensor y = rms_normed(gated.unflatten(2, {groups, -1}), weight, 1e-5).flatten(2);
        CHECK(within(p.forward(x), at::matmul(y, p["out.weight"]), 1e-12));
    }
}

TEST_CASE("pitfall 23: Mamba-2 starts with rates in [1, 16], time steps in [0.001, 0.1] and a skip of 1, none of them decayed",
          "[pitfall]") {
    const Variant many{"mamba2", {{"heads", "32"}}, false};
    std::vector<std::uint64_t> seeds;
    for (std::uint64_t seed = 0; seed < 100; ++seed) seeds.push_back(seed);
    Unit unit(many, seeds, at::kDouble);
    std::map<std::string, at::Tensor> start;
    for (std::size_t i = 0; i < unit.parameters.table().size(); ++i) {
        const nn::ParameterInfo& info = unit.parameters.table()[i];
        start[info.name] = unit.parameters.leaf(i).detach();
        const bool matrix = info.name.find("weight") != std::string::npos && info.name.find("norm") == std::string::npos;
        INFO(info.name);
        CHECK((info.decay == nn::Decay::yes) == (matrix || info.name == "mixer.conv.kernel"));
        const bool gate = info.name == "mixer.a_log" || info.name == "mixer.dt_bias" || info.name == "mixer.skip";
        CHECK((info.decay == nn::Decay::never) == gate);  // under weight_decay_on: all neither
    }
    const at::Tensor rate = start.at("mixer.a_log").exp(), dt = (1 + start.at("mixer.dt_bias").exp()).log();
    CHECK(rate.min().item<double>() >= 1);
    CHECK(rate.max().item<double>() <= 16);
    // 3200 draws of a uniform number of width 15: within 5 standard errors; log(1..H) would have another mean and no spread over
    // seeds
    CHECK(rate.mean().item<double>() == Approx(8.5).margin(5 * 15 / std::sqrt(12 * 3200.0)));
    CHECK(rate.std(0).min().item<double>() > 3);
    CHECK(dt.min().item<double>() > 0.00099);
    CHECK(dt.max().item<double>() < 0.101);
    CHECK(start.at("mixer.skip").eq(1).all().item<bool>());
}

TEST_CASE("pitfall 27 and 28: Mamba-2 stays finite where steps are huge and where they vanish", "[pitfall]") {
    Unit unit({"mamba2", {{"heads", "1"}}, false}, {7}, at::kFloat);
    for (const double size : {1e-6, 1.0, 1e4}) {
        INFO("inputs of size " << size);
        const at::Tensor x = noise({1, 2, 100, width}, 1, at::kFloat), weight = noise({1, 2, 100, width}, 2, at::kFloat);
        const Unit::Gradients g = unit.differentiate(size * x, weight);
        CHECK(at::isfinite(g.y).all().item<bool>());
        CHECK(at::isfinite(g.x).all().item<bool>());
        for (const auto& [name, gradient] : g.parameters) {
            INFO(name);
            CHECK(at::isfinite(gradient).all().item<bool>());
        }
    }
}

TEST_CASE("published size of Mamba-2; what it refuses") {
    CHECK(parameter_count("mamba2", 2048, {{"heads", "64"}, {"state", "128"}}) == 25'847'232);
    Unit unit({"mamba2", {{"state", "12"}}, false}, {7}, at::kFloat);
    State state;
    unit.mixer->forward(noise({1, 1, 5, width}, 1, at::kFloat), &state, StepContext{});
    CHECK(state["memory"].numel() == 2 * width * 12);
    CHECK(state["conv"].numel() == 3 * (2 * width + 2 * 12));
    CHECK(refusal({"mamba2", {{"heads", "4"}, {"groups", "3"}}, false}) ==
          "mixers.mamba2.groups: 3 groups do not divide the 4 heads");
    CHECK(refusal({"mamba2", {{"heads", "3"}}, false}) ==
          "mixers.mamba2.expand: 2 x model.width 16 is 32 features, which 3 heads do not divide");
    CHECK(refusal({"mamba2", {{"decay_low", "20"}}, false}) == "mixers.mamba2.decay_low: 20 is above decay_high 16");
}
