// Performer against its estimate of softmax attention, written out from the parameters; the law of its random directions;
// redrawing.
#include "core/error.h"
#include "model/model.h"
#include "parts.h"

#include <algorithm>
#include <cmath>

using namespace palimpsest;
using namespace palimpsest::conformance;

namespace {

// log phi(x)_i but for -log sqrt m: w_i . c x - |c x|^2 / 2, c = D^-1/4. x [..., D], w [m, D].
at::Tensor exponents(const at::Tensor& x, const at::Tensor& w) {
    const at::Tensor y = x * std::pow(static_cast<double>(x.size(-1)), -0.25);
    return at::matmul(y, w.transpose(-1, -2)) - y.square().sum(-1, true) / 2;
}

at::Tensor directions(const Unit& unit) {
    for (std::size_t i = 0; i < unit.parameters.table().size(); ++i) {
        if (unit.parameters.table()[i].name == "mixer.directions") return unit.parameters.leaf(i);
    }
    throw std::out_of_range("directions");
}

StepContext training(const std::vector<std::int64_t>& seeds, std::int64_t step) {
    StepContext context;
    context.training = true;
    context.lane_seeds = at::empty({static_cast<std::int64_t>(seeds.size())}, at::kLong);
    std::copy(seeds.begin(), seeds.end(), context.lane_seeds.mutable_data_ptr<std::int64_t>());
    context.step = at::full({static_cast<std::int64_t>(seeds.size())}, step, context.lane_seeds.options());
    return context;
}

}  // namespace

TEST_CASE("Performer is attention under its estimate of the softmax kernel") {
    struct Case {
        std::string kernel, norm, features, eps;
    };
    for (const Case& c : {Case{"exp", "none", "0", "1e-30"}, Case{"exp", "l2", "5", "1e-30"}, Case{"relu", "none", "0", "1e-3"}}) {
        INFO("kernel " << c.kernel << ", qk_norm " << c.norm << ", features " << c.features);
        Parts p({"performer",
                 {{"kernel", c.kernel},
                  {"qk_norm", c.norm},
                  {"features", c.features},
                  {"eps", c.eps},
                  {"short_conv", "0"},
                  {"out_norm", "false"}},
                 false});
        const at::Tensor w = p["directions"];
        const std::int64_t m = w.size(0);
        CHECK(m == (c.features == "5" ? 5 : 16));  // 8 ln 8 = 16.6
        const at::Tensor x = noise({2, 30, width}, 3, at::kDouble);
        const auto phi = [&](const std::string& name) {
            at::Tensor y = p.heads(x, name, 2).transpose(1, 2);
            if (c.norm == "l2") y = unit_length(y);
            const at::Tensor h = at::matmul(y, w.transpose(0, 1)) * std::pow(8, -0.25);
            return (c.kernel == "relu" ? h.clamp_min(0) + 1e-3 : exponents(y, w).exp()) / std::sqrt(static_cast<double>(m));
        };
        const at::Tensor weight = at::matmul(phi("q"), phi("k").transpose(-1, -2)).tril();
        const at::Tensor o = at::matmul(weight, p.heads(x, "v", 2).transpose(1, 2)) / (weight.sum(-1, true) + std::stod(c.eps));
        CHECK(within(p.forward(x), at::matmul(o.transpose(1, 2).flatten(2), p["out.weight"]), 1e-12));
    }
}

TEST_CASE("Performer is exact where e^h underflows") {
    // Long keys: exponents near -800, and smaller still where a token is longer.
    Parts p({"performer", {{"short_conv", "0"}, {"out_norm", "false"}, {"eps", "1e-30"}}, false});
    p["k.weight"][0].fill_(24);
    const at::Tensor x = noise({2, 40, width}, 4, at::kDouble), t = at::arange(40, x.options());
    x.select(-1, 0).copy_(1 + 0.002 * at::where(t < 20, 20 - t, t - 20));
    const at::Tensor w = p["directions"];
    const at::Tensor q = exponents(p.heads(x, "q", 2).transpose(1, 2), w), k = exponents(p.heads(x, "k", 2).transpose(1, 2), w);
    CHECK(k.exp().select(1, 0).amax().item<double>() < 1e-250);
    const at::Tensor logits = at::logsumexp(q.unsqueeze(3) + k.unsqueeze(2), -1);  // log of m phi(q_t) . phi(k_j)
    const at::Tensor later = at::ones({40, 40}, x.options().dtype(at::kBool)).triu(1);
    const at::Tensor o = at::matmul(at::softmax(logits.masked_fill(later, -INFINITY), -1), p.heads(x, "v", 2).transpose(1, 2));
    CHECK(within(p.forward(x), at::matmul(o.transpose(1, 2).flatten(2), p["out.weight"]), 1e-10));
}

TEST_CASE("Performer stays finite in fp32 where queries and keys are long or vanish") {
    Unit unit({"performer", {}, false}, {7}, at::kFloat);
    for (const double size : {1e-6, 1.0, 30.0, 1000.0}) {
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

TEST_CASE("pitfall 43: Performer, a longer last key changes no earlier output, bit for bit", "[pitfall]") {
    Unit unit({"performer", {{"short_conv", "0"}}, false}, {7}, at::kFloat);
    const at::Tensor x = noise({1, 2, 30, width}, 5, at::kFloat), longer = x.clone();
    longer.select(2, 29).mul_(4);
    const at::NoGradGuard no_grad;
    const at::Tensor before = unit.mixer->forward(x, nullptr, StepContext{}),
                     after = unit.mixer->forward(longer, nullptr, StepContext{});
    CHECK(at::equal(before.narrow(2, 0, 29), after.narrow(2, 0, 29)));
    CHECK_FALSE(at::equal(before, after));
}

TEST_CASE("Performer's directions: orthogonal in blocks, of the length asked for, a function of seed and layer") {
    for (const std::string length : {"chi", "sqrt_d"}) {
        INFO(length);
        const Variant variant{"performer", {{"features", "20"}, {"row_length", length}}, false};  // blocks of 8, 8 and 4 rows
        std::vector<std::uint64_t> seeds;
        for (std::uint64_t seed = 0; seed < 200; ++seed) seeds.push_back(seed);
        Unit unit(variant, seeds, at::kDouble);
        const at::Tensor w = directions(unit);
        CHECK_FALSE(w.requires_grad());
        for (const std::int64_t start : {0, 8, 16}) {
            const std::int64_t rows = start == 16 ? 4 : 8;
            const at::Tensor block = w.narrow(1, start, rows), gram = at::matmul(block, block.transpose(1, 2));
            CHECK((gram * (1 - at::eye(rows, w.options()))).abs().max().item<double>() < 1e-12);
        }
        CHECK(at::matmul(w[0][0], w[0][8]).abs().item<double>() > 1e-6);  // blocks are drawn apart
        const at::Tensor squares = w.square().sum(2);
        if (length == "sqrt_d") {
            CHECK((squares - 8).abs().max().item<double>() < 1e-12);
        } else {  // chi-squared with 8 degrees: mean 8, variance 16, over 4000 rows
            CHECK(squares.mean().item<double>() == Approx(8).margin(5 * std::sqrt(16 / 4000.0)));
            CHECK(squares.var().item<double>() == Approx(16).epsilon(0.15));
        }
        // every coordinate is centred, whatever the row in its block
        CHECK(w.mean(0).abs().max().item<double>() < 5 / std::sqrt(200.0));
        CHECK_FALSE(at::equal(w[0], w[1]));
        CHECK(at::equal(directions(Unit(variant, {1}, at::kDouble))[0], w[1]));
    }
}

TEST_CASE("pitfall 44: Performer's estimate is unbiased with chi lengths and too small with sqrt D", "[pitfall]") {
    std::vector<std::uint64_t> seeds;
    for (std::uint64_t seed = 0; seed < 4000; ++seed) seeds.push_back(seed);
    const at::Tensor x = noise({2, width}, 11, at::kDouble), unit = x / x.square().sum(-1, true).sqrt();
    const at::Tensor q = 2.5 * unit[0], k = 2.5 * (0.8 * unit[0] + 0.6 * unit[1]);
    const double exact = std::exp((q * k).sum().item<double>() / std::sqrt(static_cast<double>(width)));
    for (const std::string length : {"chi", "sqrt_d"}) {
        INFO(length);
        Unit drawn({"performer", {{"heads", "1"}, {"row_length", length}}, false}, seeds, at::kDouble);
        const at::Tensor w = directions(drawn);  // [4000, 44, 16]
        const at::Tensor estimate = (exponents(q.unsqueeze(0), w) + exponents(k.unsqueeze(0), w)).exp().mean(-1).flatten();
        const double mean = estimate.mean().item<double>(), error = estimate.std().item<double>() / std::sqrt(4000.0);
        INFO("mean " << mean << " +- " << error << ", exact " << exact);
        CHECK(error < 0.05 * exact);
        if (length == "chi") CHECK(std::abs(mean - exact) < 3 * error);
        else CHECK(mean < exact - 10 * error);
    }
}

TEST_CASE("Performer redraws by step alone: packed lanes, evaluation and a resumed run have the same directions") {
    const Variant variant{"performer", {{"redraw_every", "3"}}, false};
    Unit unit(variant, {7, 8}, at::kDouble), resumed(variant, {7, 8}, at::kDouble), alone(variant, {8}, at::kDouble);
    const at::Tensor x = noise({2, 2, 12, width}, 5, at::kDouble);
    const at::NoGradGuard no_grad;
    const at::Tensor first = directions(unit).clone();
    std::vector<at::Tensor> drawn;
    for (std::int64_t step = 0; step < 9; ++step) {
        INFO("step " << step);
        const at::Tensor y = unit.mixer->forward(x, nullptr, training({7, 8}, step));
        drawn.push_back(directions(unit).clone());
        CHECK(at::equal(drawn[static_cast<std::size_t>(step)], step < 3 ? first : drawn[static_cast<std::size_t>(step / 3 * 3)]));
        CHECK(at::equal(unit.mixer->forward(x, nullptr, StepContext{}), y));  // evaluation keeps them
        if (step < 4) continue;
        if (step == 4) resumed.parameters.values().copy_(unit.parameters.values());  // a checkpoint between two draws
        if (step == 4) CHECK(at::equal(resumed.mixer->forward(x, nullptr, StepContext{}), y));
        CHECK(at::equal(resumed.mixer->forward(x, nullptr, training({7, 8}, step)), y));
        alone.mixer->forward(x.narrow(0, 1, 1), nullptr, training({8}, step));
        CHECK(at::equal(directions(alone)[0], directions(unit)[1]));
    }
    CHECK_FALSE(at::equal(drawn[2], drawn[3]));
    CHECK_FALSE(at::equal(drawn[5], drawn[6]));
    CHECK_FALSE(at::equal(drawn[6][0], drawn[6][1]));
    StepContext elsewhere = training({7, 8}, 0);
    elsewhere.step = elsewhere.step.to(at::kMeta);
    CHECK_THROWS_WITH(unit.mixer->forward(x, nullptr, elsewhere),
                      "mixers.performer.redraw_every: directions are redrawn on the CPU only; set it to 0");
}

TEST_CASE("a model of Performers trains through a redraw, and no two layers share directions") {
    RunSpec spec;
    spec.model.width = width;
    spec.model.layers = {"performer", "performer"};
    const MixerKind& kind = get_mixer("performer");
    const auto options = kind.schema().make_default();
    Value map = Value::map();
    map.set("redraw_every", Value::scalar("1"));
    Diagnostics errors;
    kind.schema().read(options.get(), map, "mixers.performer", errors);
    errors.throw_if_any();
    spec.mixers["performer"] = options;
    Model model(spec, {11, longest}, {{7, 1}}, at::kCPU, at::kDouble);
    at::Tensor one, other;
    for (std::size_t i = 0; i < model.parameters().table().size(); ++i) {
        if (model.parameters().table()[i].name == "layers.0.mixer.directions") one = model.parameters().leaf(i);
        if (model.parameters().table()[i].name == "layers.1.mixer.directions") other = model.parameters().leaf(i);
    }
    const at::Tensor tokens = at::arange(20, at::kLong).remainder(11).view({1, 2, 10}), before = one.clone();
    for (std::int64_t step = 0; step < 2; ++step) {
        model.parameters().zero_gradients();
        model.hidden(tokens, nullptr, training({7}, step)).sum().backward();
        CHECK(at::isfinite(model.parameters().gradients()).all().item<bool>());
        CHECK(at::equal(one, before) == (step == 0));
        CHECK_FALSE(at::equal(one, other));
    }
}

TEST_CASE("size of Performer; what it refuses") {
    // The directions are drawn, not trained: they count apart.
    CHECK(Unit({"performer", {}, false}, {1, 2}, at::kFloat).parameters.fixed_count() == 16 * 8);  // 8 ln 8 = 16.6
    CHECK(parameter_count("performer", 64, {{"short_conv", "0"}}) == 4 * 64 * 64 + 32);
    CHECK(parameter_count("performer", 4, {{"heads", "4"}, {"short_conv", "0"}}) == 4 * 16 + 1);
    CHECK(refusal({"performer", {{"heads", "3"}}, false}) ==
          "mixers.performer.heads: 1 x model.width 16 is 16 features, which 3 heads do not divide");
}
