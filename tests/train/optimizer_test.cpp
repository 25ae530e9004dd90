// AdamW against torch.optim.AdamW, clipping, decay groups, lanes, and the schedule.
#include "train/optimizer.h"

#include "train/schedule.h"

#include <ATen/Parallel.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "catch.h"

using namespace palimpsest;
using train::Optimizer;

namespace {

// Two parameters, a decayed "a" [6] and a "b" [3] that is not, filled as in the reference below. Lane r of the gradient of step t
// is scaled by 1 + r.
struct Bench {
    nn::Parameters parameters;

    explicit Bench(std::int64_t lanes = 1) {
        parameters.declare("a", {6}, nn::InitRule::constant(0), nn::Decay::yes);
        parameters.declare("b", {3}, nn::InitRule::constant(0), nn::Decay::no);
        parameters.allocate(std::vector<std::uint64_t>(static_cast<std::size_t>(lanes), 1),
                            std::vector<double>(static_cast<std::size_t>(lanes), 1), at::kCPU);
        each([](std::int64_t lane, std::int64_t p, std::int64_t i, float& value, float&) {
            static_cast<void>(lane);
            value = static_cast<float>(std::cos(1.3 * static_cast<double>(i + 1) + static_cast<double>(p)));
        });
    }
    template <class F>
    void each(F f) {
        for (std::size_t p = 0; p < parameters.table().size(); ++p) {
            const nn::ParameterInfo& info = parameters.table()[p];
            for (std::int64_t lane = 0; lane < parameters.lanes(); ++lane)
                for (std::int64_t i = 0; i < info.numel; ++i) {
                    const std::int64_t at = info.offset + lane * info.numel + i;
                    f(lane, static_cast<std::int64_t>(p), i, parameters.values().data_ptr<float>()[at],
                      parameters.gradients().data_ptr<float>()[at]);
                }
        }
    }
    void set_gradients(int t) {
        each([t](std::int64_t lane, std::int64_t p, std::int64_t i, float&, float& gradient) {
            gradient = static_cast<float>((1 + static_cast<double>(lane)) *
                                          std::sin(0.7 * static_cast<double>(i + 1) * (t + 1) + static_cast<double>(p)) *
                                          (i % 2 ? 1.5 : 0.2));
        });
    }
    std::vector<float> values(std::int64_t wanted) {
        std::vector<float> out;
        each([&](std::int64_t lane, std::int64_t, std::int64_t, float& value, float&) {
            if (lane == wanted) out.push_back(value);
        });
        return out;
    }
};

std::vector<float> lane_of(const Bench& bench, const at::Tensor& flat, std::int64_t lane) {
    std::vector<float> out;
    for (const nn::ParameterInfo& info : bench.parameters.table())
        for (std::int64_t i = 0; i < info.numel; ++i) out.push_back(flat.data_ptr<float>()[info.offset + lane * info.numel + i]);
    return out;
}

bool same_bytes(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TrainSpec options(double clip, DecayOn decay, NonFinite non_finite = NonFinite::stop) {
    TrainSpec out;
    out.clip = clip;
    out.weight_decay_on = decay;
    out.non_finite = non_finite;
    return out;
}

std::unique_ptr<Optimizer> adamw_of(nn::Parameters& parameters, const std::vector<LaneValues>& lanes, const TrainSpec& spec,
                                    Optimizer::Path path = Optimizer::Path::automatic) {
    return train::make_optimizer(parameters, lanes, spec, path);
}

const at::Tensor& finite_loss(std::int64_t lanes) {
    static at::Tensor loss;
    loss = at::ones({lanes});
    return loss;
}

struct Reference {
    LaneValues values;
    double clip;
    DecayOn decay;
    std::array<std::array<double, 9>, 4> after;  // steps 1, 2, 10 and 20: a, then b
};

// torch 2.11, torch.optim.AdamW(foreach=False), torch.nn.utils.clip_grad_norm_ where clip > 0; fp32, the same gradients.
const Reference references[] = {
    {{1, 1e-2, 0.1, 0.9, 0.999, 1},
     0,
     DecayOn::matrices,
     {{{0.257231325, -0.866031885, -0.735206366, 0.458048165, 0.985611081, 0.0639014691, -0.676276028, -0.906758428, 0.176512375},
       {0.247079492, -0.873905659, -0.733896613, 0.461024374, 0.981215179, 0.063409619, -0.686003685, -0.906726241, 0.18363066},
       {0.222490042, -0.871707857, -0.732476592, 0.454192281, 0.976670742, 0.0671420917, -0.687736273, -0.902080715, 0.185587198},
       {0.213660613, -0.866486669, -0.725539982, 0.450037777, 0.966437995, 0.0670331195, -0.691293895, -0.901445687,
        0.187886268}}}},
    {{1, 3e-3, 0.3, 0.8, 0.95, 1},
     1,
     DecayOn::matrices,
     {{{0.264258087, -0.859117627, -0.728278995, 0.465095043, 0.978708804, 0.0569068603, -0.669276059, -0.899758458, 0.183512375},
       {0.261065066, -0.860997379, -0.72702986, 0.466042459, 0.976468027, 0.056304507, -0.672230959, -0.89932394, 0.185763881},
       {0.255235374, -0.855500817, -0.722578287, 0.463404745, 0.968644738, 0.0563180223, -0.672378898, -0.897912681, 0.184764147},
       {0.251340687, -0.849039137, -0.715046942, 0.461625069, 0.95690006, 0.0540745892, -0.676445127, -0.898955226, 0.183102846}}}},
    {{1, 1e-2, 0.1, 0.9, 0.999, 1},
     0,
     DecayOn::all,
     {{{0.257231325, -0.866031885, -0.735206366, 0.458048165, 0.985611081, 0.0639014691, -0.675609767, -0.905861676, 0.176325873},
       {0.247079492, -0.873905659, -0.733896613, 0.461024374, 0.981215179, 0.063409619, -0.684661806, -0.904923618, 0.183267832},
       {0.222490042, -0.871707857, -0.732476592, 0.454192281, 0.976670742, 0.0671420917, -0.680900037, -0.893100381, 0.183755368},
       {0.213660613, -0.866486669, -0.725539982, 0.450037777, 0.966437995, 0.0670331195, -0.677651286, -0.883585691,
        0.184212938}}}},
};

}  // namespace

TEST_CASE("twenty steps of AdamW are torch's", "[train][optimizer]") {
    const Optimizer::Path path = GENERATE(Optimizer::Path::raw, Optimizer::Path::tensor);
    for (const Reference& reference : references) {
        Bench bench;
        const auto adamw = adamw_of(bench.parameters, {reference.values}, options(reference.clip, reference.decay), path);
        std::size_t row = 0;
        for (int t = 0; t < 20; ++t) {
            bench.set_gradients(t);
            adamw->step(finite_loss(1), 1);
            if (t != 0 && t != 1 && t != 9 && t != 19) continue;
            const std::vector<float> values = bench.values(0);
            for (std::size_t i = 0; i < values.size(); ++i) {
                INFO("step " << t + 1 << ", element " << i);
                CHECK(std::abs(values[i] - reference.after[row][i]) < 1e-6);
            }
            ++row;
        }
    }
}

TEST_CASE("what weight_decay_on decays", "[train][optimizer]") {
    for (const Optimizer::Path path : {Optimizer::Path::raw, Optimizer::Path::tensor})
        for (const DecayOn on : {DecayOn::matrices, DecayOn::all}) {
            nn::Parameters parameters;
            parameters.declare("matrix", {4}, nn::InitRule::constant(1), nn::Decay::yes);
            parameters.declare("bias", {4}, nn::InitRule::constant(1), nn::Decay::no);
            parameters.declare("rate", {4}, nn::InitRule::constant(1), nn::Decay::never);
            parameters.allocate({1}, {1}, at::kCPU);
            const auto adam = adamw_of(parameters, {{1, 0.1, 0.5, 0.9, 0.999, 1}}, options(0, on), path);
            adam->step(finite_loss(1), 1);  // no gradient: what changes has decayed
            const auto value = [&](std::size_t i) { return parameters.leaf(i).detach().min().item<double>(); };
            CHECK(value(0) == Approx(0.95));
            CHECK(value(1) == Approx(on == DecayOn::all ? 0.95 : 1));
            CHECK(value(2) == 1);
        }
}

TEST_CASE("clipping is by the norm over all parameters of the lane", "[train][optimizer]") {
    const Optimizer::Path path = GENERATE(Optimizer::Path::raw, Optimizer::Path::tensor);
    Bench bench(2);
    bench.set_gradients(3);
    const auto adamw = adamw_of(bench.parameters, {LaneValues{}, LaneValues{}}, options(0.5, DecayOn::matrices), path);
    double squares = 0;
    bench.each([&](std::int64_t lane, std::int64_t, std::int64_t, float&, float& gradient) {
        squares += lane == 0 ? gradient * gradient : 0;
    });
    adamw->step(finite_loss(2), 1);
    CHECK(adamw->gradient_norm()[0].item<double>() == Approx(std::sqrt(squares)).epsilon(1e-6));
    CHECK(adamw->gradient_norm()[1].item<double>() == Approx(2 * std::sqrt(squares)).epsilon(1e-6));
    // First moment after one step: (1 - beta1) g clip / (norm + 1e-6); both lanes are cut to the same norm.
    const std::vector<float> first = lane_of(bench, adamw->state("first_moment"), 0),
                             second = lane_of(bench, adamw->state("first_moment"), 1);
    double norm = 0;
    for (std::size_t i = 0; i < first.size(); ++i) {
        norm += static_cast<double>(first[i]) * first[i];
        CHECK(second[i] == Approx(first[i]).epsilon(1e-5));
    }
    CHECK(std::sqrt(norm) == Approx(0.1 * 0.5).epsilon(1e-5));
}

TEST_CASE("a lane of a pack is updated as it is alone", "[train][optimizer]") {
    const LaneValues one{1, 1e-2, 0.1, 0.9, 0.999, 1}, two{2, 3e-3, 0.3, 0.8, 0.95, 1};
    Bench pack(2), alone;
    const auto packed = adamw_of(pack.parameters, {one, two}, options(1, DecayOn::matrices)),
               single = adamw_of(alone.parameters, {one}, options(1, DecayOn::matrices));
    for (int t = 0; t < 10; ++t) {
        pack.set_gradients(t);
        alone.set_gradients(t);
        packed->step(finite_loss(2), 0.7);
        single->step(finite_loss(1), 0.7);
    }
    CHECK(same_bytes(pack.values(0), alone.values(0)));
    CHECK_FALSE(same_bytes(pack.values(1), alone.values(0)));
}

TEST_CASE("AdamW's sums and updates are the same bits with one thread and with three", "[train][optimizer]") {
    const int before = at::get_num_threads();
    std::vector<std::vector<float>> results;
    for (const int threads : {1, 3}) {
        at::set_num_threads(threads);
        nn::Parameters parameters;  // 61 pieces, enough for several threads
        parameters.declare("a", {490'001}, nn::InitRule::normal(1), nn::Decay::yes);
        parameters.allocate({5}, {1}, at::kCPU);
        parameters.gradients().copy_(parameters.values() * 0.3);
        const auto adamw = adamw_of(parameters, {{}}, options(1, DecayOn::matrices));
        for (int t = 0; t < 3; ++t) adamw->step(finite_loss(1), 1);
        const float* values = parameters.values().data_ptr<float>();
        results.emplace_back(values, values + 490'001);
        results.back().push_back(static_cast<float>(adamw->gradient_norm().item<double>()));
        CHECK(adamw->updates().item<std::int64_t>() == 3);
    }
    at::set_num_threads(before);
    CHECK(same_bytes(results[0], results[1]));
}

TEST_CASE("a lane that is not finite, or not live, keeps parameters and moments bit for bit", "[train][optimizer]") {
    const Optimizer::Path path = GENERATE(Optimizer::Path::raw, Optimizer::Path::tensor);
    const NonFinite policy = GENERATE(NonFinite::stop, NonFinite::skip, NonFinite::warn);
    Bench bench(3);
    const auto adamw = adamw_of(bench.parameters, std::vector<LaneValues>(3), options(1, DecayOn::matrices, policy), path);
    bench.set_gradients(0);
    adamw->step(finite_loss(3), 1);
    adamw->live()[2].fill_(false);

    bench.set_gradients(1);
    const float bad = GENERATE(std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity());
    bench.parameters.gradients().data_ptr<float>()[bench.parameters.table()[1].offset] = bad;  // lane 0, "b"
    std::vector<std::vector<float>> before, before_first, before_second;
    for (std::int64_t lane = 0; lane < 3; ++lane) {
        before.push_back(bench.values(lane));
        before_first.push_back(lane_of(bench, adamw->state("first_moment"), lane));
        before_second.push_back(lane_of(bench, adamw->state("second_moment"), lane));
    }
    adamw->step(finite_loss(3), 1);
    for (const std::int64_t lane : {0, 2}) {
        const auto r = static_cast<std::size_t>(lane);
        CHECK(same_bytes(bench.values(lane), before[r]));
        CHECK(same_bytes(lane_of(bench, adamw->state("first_moment"), lane), before_first[r]));
        CHECK(same_bytes(lane_of(bench, adamw->state("second_moment"), lane), before_second[r]));
    }
    CHECK_FALSE(same_bytes(bench.values(1), before[1]));
    CHECK(adamw->cause()[0].item<std::int64_t>() == train::Cause::first_gradient + 1);
    CHECK(adamw->cause()[1].item<std::int64_t>() == train::Cause::none);
    CHECK(adamw->skipped()[0].item<std::int64_t>() == 1);
    CHECK(adamw->skipped()[2].item<std::int64_t>() == 0);
    CHECK(adamw->updates()[0].item<std::int64_t>() == 1);
    CHECK(adamw->updates()[1].item<std::int64_t>() == 2);

    // The next step is finite: only a stopped lane stays where it is.
    bench.set_gradients(2);
    adamw->step(finite_loss(3), 1);
    CHECK(same_bytes(bench.values(0), before[0]) == (policy == NonFinite::stop));
    CHECK(adamw->updates()[0].item<std::int64_t>() == (policy == NonFinite::stop ? 1 : 2));
}

TEST_CASE("a loss that is not finite stops the update too", "[train][optimizer]") {
    const Optimizer::Path path = GENERATE(Optimizer::Path::raw, Optimizer::Path::tensor);
    Bench bench;
    bench.set_gradients(0);
    const auto adamw = adamw_of(bench.parameters, {LaneValues{}}, options(1, DecayOn::matrices), path);
    const std::vector<float> before = bench.values(0);
    adamw->step(at::full({1}, std::numeric_limits<float>::quiet_NaN()), 1);
    CHECK(same_bytes(bench.values(0), before));
    CHECK(adamw->cause()[0].item<std::int64_t>() == train::Cause::loss);
    CHECK_FALSE(adamw->live()[0].item<bool>());
}

TEST_CASE("optimizers are made by name", "[train][optimizer]") {
    CHECK(train::optimizer_names().front() == "adamw");
    for (const std::string& name : train::optimizer_names()) {
        INFO(name);
        const train::OptimizerFacts& facts = train::optimizer_facts(name);
        CHECK(facts.name == name);
        CHECK_FALSE(facts.summary.empty());
        CHECK_FALSE(facts.paper.empty());
        Bench bench(2);
        TrainSpec spec;
        spec.optimizer = name;
        const auto optimizer = train::make_optimizer(bench.parameters, std::vector<LaneValues>(2), spec);
        std::vector<std::string> names;
        for (const Optimizer::State& state : optimizer->states()) {
            names.push_back(state.name);
            CHECK(state.values.sizes() == bench.parameters.values().sizes());
        }
        CHECK(names == facts.states);
    }
    TrainSpec spec;
    spec.optimizer = "adamv";
    Bench bench;
    CHECK_THROWS_WITH(train::make_optimizer(bench.parameters, {LaneValues{}}, spec),
                      ContainsSubstring("unknown optimizer 'adamv'; did you mean 'adamw'?; known optimizers: adamw"));
}

TEST_CASE("an optimizer works in place, at addresses that stay", "[train][optimizer]") {
    const Optimizer::Path path = GENERATE(Optimizer::Path::raw, Optimizer::Path::tensor);
    Bench bench(2);
    const auto adamw = adamw_of(bench.parameters, std::vector<LaneValues>(2), options(1, DecayOn::matrices), path);
    const auto addresses = [&] {
        std::vector<const void*> out = {adamw->live().data_ptr(),    adamw->updates().data_ptr(),
                                        adamw->skipped().data_ptr(), adamw->gradient_norm().data_ptr(),
                                        adamw->cause().data_ptr(),   bench.parameters.values().data_ptr()};
        for (const Optimizer::State& state : adamw->states()) out.push_back(state.values.data_ptr());
        return out;
    };
    const std::vector<const void*> before = addresses();
    for (int t = 0; t < 3; ++t) {
        bench.set_gradients(t);
        adamw->step(finite_loss(2), 1);
    }
    CHECK(addresses() == before);
}

TEST_CASE("schedules", "[train][schedule]") {
    TrainSpec spec;
    spec.schedule = Schedule::cosine;
    spec.lr_final = 0.1;
    spec.warmup = 10;
    const train::LearningRate by_step(spec, 110, 7);
    CHECK(by_step(0) == Approx(0.1));
    CHECK(by_step(8) == Approx(0.9));
    CHECK(by_step(9) == Approx(1));
    CHECK(by_step(10) == Approx(1));
    CHECK(by_step(60) == Approx(0.55));
    CHECK(by_step(110) == Approx(0.1));

    spec.schedule = Schedule::constant;
    const train::LearningRate constant(spec, 110, 7);
    CHECK(constant(4) == Approx(0.5));
    CHECK(constant(50) == 1);

    // CosineAnnealingLR(T_max = 4), stepped once an epoch of 25 steps: 1, 0.853553, 0.5, 0.146447.
    spec = TrainSpec{};
    spec.schedule_by = Cadence::epoch;
    const train::LearningRate by_epoch(spec, 100, 25);
    CHECK(by_epoch(0) == 1);
    CHECK(by_epoch(24) == 1);
    CHECK(by_epoch(25) == Approx(0.853553).epsilon(1e-5));
    CHECK(by_epoch(74) == Approx(0.5));
    CHECK(by_epoch(99) == Approx(0.146447).epsilon(1e-5));
}
