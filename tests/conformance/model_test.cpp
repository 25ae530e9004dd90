// The laws at the level of the model: lanes with MLPs and dropout, causality, positions that continue, the head at scored
// positions.
#include "model/model.h"

#include "bench.h"
#include "core/error.h"
#include "ops/layers.h"

#include <ATen/ops/gelu.h>

#include <cmath>
#include <map>

using namespace palimpsest;
using namespace palimpsest::conformance;

namespace {

constexpr std::int64_t vocabulary = 11;

RunSpec small(std::vector<Layer> layers) {
    RunSpec spec;
    spec.model.width = width;
    spec.model.layers = std::move(layers);
    spec.model.init = Init::torch_default;
    spec.model.embedding_init = EmbeddingInit::unit_normal;
    return spec;
}

Model build(const RunSpec& spec, const std::vector<LaneInit>& lanes, at::ScalarType dtype = at::kDouble) {
    return Model(spec, {vocabulary, longest}, lanes, test_device(), dtype);
}

// Token ids, a function of the key.
at::Tensor tokens(std::int64_t lanes, std::int64_t batch, std::int64_t length, std::uint64_t key) {
    return noise({lanes, batch, length}, key, at::kDouble).mul(1000).to(at::kLong).remainder(vocabulary);
}

at::Tensor longs(std::vector<std::int64_t> values) {
    return at::from_blob(values.data(), {static_cast<std::int64_t>(values.size())}, at::kLong).clone().to(test_device());
}

StepContext training(const std::vector<std::int64_t>& seeds, std::int64_t step) {
    StepContext context;
    context.training = true;
    context.lane_seeds = longs(seeds);
    context.step = longs(std::vector<std::int64_t>(seeds.size(), step));
    return context;
}

std::map<std::string, at::Tensor> leaves(Model& model) {
    std::map<std::string, at::Tensor> found;
    const auto& table = model.parameters().table();
    for (std::size_t i = 0; i < table.size(); ++i) found[table[i].name] = model.parameters().leaf(i);
    return found;
}

// Scored positions in no order, one of them twice.
at::Tensor scored(std::int64_t lanes, std::int64_t batch) {
    return longs({5, 2, 11, 2}).view({1, 1, 4}).expand({lanes, batch, 4}).contiguous();
}

}  // namespace

TEST_CASE("model: lane law with every kind of block, dropout and initial scale") {
    for (const Mlp mlp : {Mlp::none, Mlp::identity_with_norm, Mlp::gelu, Mlp::swiglu}) {
        for (const bool tied : {true, false}) {
            RunSpec spec = small({"base_conv", "softmax"});
            spec.model.mlp = mlp;
            spec.model.tied_head = tied;
            spec.model.positions = tied ? Positions::learned : Positions::rotary;
            spec.model.norm = tied ? NormKind::layer : NormKind::rms;
            spec.model.embedding_dropout = 0.1;
            spec.model.residual_dropout = 0.2;
            const std::vector<LaneInit> lanes{{7, 1}, {8, 0.5}, {9, 2}};
            Model packed(spec, {vocabulary, longest}, lanes, test_device(), at::kDouble);
            const at::Tensor ids = tokens(3, 2, 13, 1), weight = noise({3, 8, vocabulary}, 2, at::kDouble);
            const at::Tensor all_hidden = packed.hidden(ids, nullptr, training({7, 8, 9}, 5));
            const at::Tensor all = packed.logits_at(all_hidden, scored(3, 2));
            (all * weight).sum().backward();
            for (std::int64_t lane = 0; lane < 3; ++lane) {
                INFO("mlp " << static_cast<int>(mlp) << ", tied " << tied << ", lane " << lane);
                Model alone(spec, {vocabulary, longest}, {lanes[static_cast<std::size_t>(lane)]}, test_device(), at::kDouble);
                const auto ours = leaves(packed), theirs = leaves(alone);
                for (const auto& [name, leaf] : theirs) {
                    INFO(name);
                    CHECK(at::equal(ours.at(name)[lane], leaf[0]));
                }
                const at::Tensor hidden = alone.hidden(ids.narrow(0, lane, 1), nullptr, training({7 + lane}, 5));
                const at::Tensor one = alone.logits_at(hidden, scored(1, 2));
                (one * weight.narrow(0, lane, 1)).sum().backward();
                CHECK(within(all_hidden[lane], hidden[0], 1e-12));
                CHECK(within(all[lane], one[0], 1e-12));
                for (const auto& [name, leaf] : theirs) {
                    INFO(name);
                    CHECK(within(ours.at(name).grad()[lane], leaf.grad()[0], 1e-12));
                }
            }
        }
    }
}

TEST_CASE("model: dropout acts in training alone, and its masks change with the step") {
    RunSpec spec = small({"base_conv", "base_conv"});
    Model plain = build(spec, {{7, 1}});
    spec.model.embedding_dropout = 0.5;
    Model embedding = build(spec, {{7, 1}});
    spec.model.embedding_dropout = 0;
    spec.model.residual_dropout = 0.5;
    Model residual = build(spec, {{7, 1}});
    const at::NoGradGuard no_grad;
    const at::Tensor ids = tokens(1, 2, 13, 1), expected = plain.hidden(ids, nullptr, StepContext{});
    CHECK(at::equal(plain.hidden(ids, nullptr, training({7}, 5)), expected));
    for (Model* model : {&embedding, &residual}) {
        CHECK(at::equal(model->hidden(ids, nullptr, StepContext{}), expected));
        const at::Tensor first = model->hidden(ids, nullptr, training({7}, 5));
        CHECK_FALSE(at::equal(first, expected));
        CHECK(at::equal(model->hidden(ids, nullptr, training({7}, 5)), first));
        CHECK_FALSE(at::equal(model->hidden(ids, nullptr, training({7}, 6)), first));
        CHECK_FALSE(at::equal(model->hidden(ids, nullptr, training({8}, 5)), first));
    }
}

TEST_CASE("model: blocks follow zoology's order, written as that harness writes it") {
    // dropout, add to the residual, norm, mixer; dropout, add, norm, state mixer; the last branch is added before the final norm
    for (const Mlp mlp : {Mlp::identity_with_norm, Mlp::gelu}) {
        RunSpec spec = small({"base_conv", "base_conv"});
        spec.model.mlp = mlp;
        spec.model.embedding_dropout = 0.1;
        spec.model.residual_dropout = 0.25;
        Model model = build(spec, {{7, 1}, {8, 1}});
        const auto leaf = leaves(model);
        const at::Tensor ids = tokens(2, 3, 9, 1);
        const StepContext context = training({7, 8}, 3);
        const at::NoGradGuard no_grad;
        const auto wide = [&](const std::string& name) { return leaf.at(name).unsqueeze(1).unsqueeze(1); };
        const auto norm = [&](const at::Tensor& x, const std::string& name) {
            return ops::layer_norm(x, wide(name + ".weight"), wide(name + ".bias"), spec.model.norm_eps);
        };
        const auto product = [&](const at::Tensor& x, const std::string& name) {
            return at::matmul(x, leaf.at(name + ".weight").unsqueeze(1)) + wide(name + ".bias");
        };
        const auto dropout = [&](const at::Tensor& x, double p, std::int64_t site) {
            return ops::dropout(x, p, context.lane_seeds, context.step, site);
        };

        at::Tensor branch = at::stack({leaf.at("embedding")[0].index({ids[0]}), leaf.at("embedding")[1].index({ids[1]})}), residual;
        for (std::int64_t layer = 0; layer < 2; ++layer) {
            const std::string at = "layers." + std::to_string(layer) + ".";
            const at::Tensor dropped = dropout(branch, layer == 0 ? 0.1 : 0.25, 2 * layer);
            residual = residual.defined() ? dropped + residual : dropped;
            const at::Tensor u = norm(residual, at + "mixer_norm");
            const at::Tensor conv =
                ops::short_conv(u, leaf.at(at + "mixer.conv.kernel"), leaf.at(at + "mixer.conv.bias"), {}).first;
            residual = dropout(conv * product(u, at + "mixer.projection") + u, 0.25, 2 * layer + 1) + residual;
            branch = norm(residual, at + "mlp_norm");
            if (mlp == Mlp::gelu) branch = product(at::gelu(product(branch, at + "mlp.up")), at + "mlp.down");
        }
        const at::Tensor expected = norm(dropout(branch, 0.25, 4) + residual, "final_norm");
        CHECK(within(model.hidden(ids, nullptr, context), expected, 1e-13));
    }
}

TEST_CASE("model: later tokens change no earlier hidden state and no earlier gradient") {
    for (const std::string& name : mixer_names()) {
        RunSpec spec = small({"base_conv", name});
        spec.model.positions = Positions::rotary;
        spec.model.mlp = Mlp::swiglu;
        Model model = build(spec, {{7, 1}, {8, 1}}, at::kFloat);
        for (const std::int64_t t : {1, 13, 64, 79}) {
            INFO(name << ", the future begins at " << t);
            at::Tensor ids = tokens(2, 2, 80, 1), changed = ids.clone();
            changed.narrow(2, t, 80 - t).copy_((ids.narrow(2, t, 80 - t) + 1).remainder(vocabulary));
            at::Tensor weight = noise({2, 2, 80, width}, 2, at::kFloat);
            weight.narrow(2, t, 80 - t).zero_();
            std::vector<at::Tensor> hidden, gradients;
            for (const at::Tensor& input : {ids, changed}) {
                model.parameters().zero_gradients();
                hidden.push_back(model.hidden(input, nullptr, StepContext{}));
                (hidden.back() * weight).sum().backward();
                gradients.push_back(model.parameters().gradients().clone());
            }
            CHECK(at::equal(hidden[0].narrow(2, 0, t), hidden[1].narrow(2, 0, t)));
            CHECK_FALSE(at::equal(hidden[0], hidden[1]));
            CHECK(at::equal(gradients[0], gradients[1]));
        }
    }
}

TEST_CASE("model: a sequence continues at its position, from its states") {
    for (const std::string& name : mixer_names()) {
        for (const Positions positions : {Positions::none, Positions::learned, Positions::rotary}) {
            RunSpec spec = small({"base_conv", name});
            spec.model.positions = positions;
            Model model = build(spec, {{7, 1}, {8, 1}});
            const at::NoGradGuard no_grad;
            const at::Tensor ids = tokens(2, 2, 12, 1), whole = model.hidden(ids, nullptr, StepContext{});
            for (std::int64_t split = 1; split < 12; ++split) {
                INFO(name << ", positions " << static_cast<int>(positions) << ", split at " << split);
                std::vector<State> states;
                StepContext context;
                const at::Tensor head = model.hidden(ids.narrow(2, 0, split), &states, context);
                context.position = split;
                const at::Tensor tail = model.hidden(ids.narrow(2, split, 12 - split), &states, context);
                CHECK(within(at::cat({head, tail}, 2), whole, 1e-11));
            }
        }
    }
}

TEST_CASE("model: positions matter where they should") {
    // Softmax alone, without positions, gives the last token the same state whatever the order before it.
    const at::NoGradGuard no_grad;
    const at::Tensor ids = longs({1, 2, 3, 4, 5}).view({1, 1, 5}), swapped = longs({3, 2, 1, 4, 5}).view({1, 1, 5});
    for (const Positions positions : {Positions::none, Positions::learned, Positions::rotary}) {
        RunSpec spec = small({"softmax"});
        spec.model.positions = positions;
        Model model = build(spec, {{7, 1}});
        const at::Tensor a = model.hidden(ids, nullptr, StepContext{}).select(2, 4),
                         b = model.hidden(swapped, nullptr, StepContext{}).select(2, 4);
        if (positions == Positions::none) CHECK(within(a, b, 1e-12));
        else CHECK(distance(a, b).rms > 1e-3);
    }
}

TEST_CASE("model: positions beyond the longest segment are refused") {
    RunSpec spec = small({"softmax"});
    spec.model.positions = Positions::learned;
    Model model = build(spec, {{7, 1}});
    StepContext context;
    context.position = longest - 3;
    CHECK_THROWS_WITH(model.hidden(tokens(1, 1, 4, 1), nullptr, context), ContainsSubstring("positions 125 to 129 of at most 128"));
    CHECK_THROWS_WITH(model.hidden(tokens(2, 1, 4, 1), nullptr, StepContext{}),
                      ContainsSubstring("2 lanes; the model has 1 lanes"));
}

TEST_CASE("model: logits at scored positions are those of all positions, gathered") {
    for (const bool tied : {true, false}) {
        RunSpec spec = small({"base_conv"});
        spec.model.tied_head = tied;
        Model model = build(spec, {{7, 1}, {8, 1}});
        const at::Tensor hidden = model.hidden(tokens(2, 3, 13, 1), nullptr, StepContext{}).detach().set_requires_grad(true);
        const at::Tensor positions = scored(2, 3) - longs({0, 1, 2}).view({1, 3, 1});
        const at::Tensor logits = model.logits_at(hidden, positions);
        const at::Tensor weight = noise({2, 12, vocabulary}, 2, at::kDouble);
        (logits * weight).sum().backward();

        const at::Tensor table = leaves(model).at(tied ? "embedding" : "head").detach();
        const at::Tensor same = hidden.detach().clone().set_requires_grad(true);
        const at::Tensor every = at::matmul(same, table.transpose(1, 2).unsqueeze(1));  // [R, B, T, V]
        const at::Tensor gathered = every.gather(2, positions.unsqueeze(3).expand({2, 3, 4, vocabulary})).view({2, 12, vocabulary});
        (gathered * weight).sum().backward();
        CHECK(within(logits, gathered, 1e-13));
        CHECK(within(hidden.grad(), same.grad(), 1e-13));
    }
}

TEST_CASE("model: gradients of a step repeat bit for bit") {
    // Two threads and as many rows as make ATen use both: the gradient of advanced indexing fails here as soon as both threads run
    // at once.
    const Threads two(2);
    const Deterministic deterministic;         // the promise: always on the CPU, in this mode on CUDA
    for (const std::int64_t lanes : {1, 3}) {  // 3: the threads meet in the middle of a lane
        RunSpec spec = small({"base_conv", "softmax"});
        spec.model.width = 32;
        spec.model.residual_dropout = 0.1;
        Model model = build(spec, std::vector<LaneInit>(static_cast<std::size_t>(lanes)), at::kFloat);
        const at::Tensor ids = tokens(lanes, 64, 64, 1), targets = tokens(lanes, 64, 64, 3).view({lanes, -1});
        const at::Tensor positions = noise({lanes, 64, 64}, 4, at::kDouble).mul(1000).to(at::kLong).remainder(64);
        const StepContext context = training(std::vector<std::int64_t>(static_cast<std::size_t>(lanes), 7), 1);
        at::Tensor first;
        for (int repeat = 0; repeat < 4; ++repeat) {
            model.parameters().zero_gradients();
            ops::cross_entropy(model.logits_at(model.hidden(ids, nullptr, context), positions), targets).sum().backward();
            if (repeat == 0) first = model.parameters().gradients().clone();
            CHECK(at::equal(model.parameters().gradients(), first));
            CHECK(first.narrow(0, 0, lanes * vocabulary * spec.model.width).ne(0).any().item<bool>());  // the embedding's
        }
    }
}

TEST_CASE("model: a frozen embedding gets no gradient, and the rest does") {
    RunSpec spec = small({"softmax"});
    spec.model.train_embedding = false;
    Model model = build(spec, {{7, 1}});
    model.logits_at(model.hidden(tokens(1, 2, 13, 1), nullptr, StepContext{}), scored(1, 2)).sum().backward();
    for (const auto& [name, leaf] : leaves(model)) {
        INFO(name);
        CHECK(leaf.requires_grad() == (name != "embedding"));
        if (name == "layers.0.mixer.out.weight") CHECK(leaf.grad().ne(0).any().item<bool>());
    }
}

TEST_CASE("model: sizes that can be counted by hand") {
    RunSpec spec = small({"base_conv", "softmax"});
    Model model = build(spec, {{7, 1}, {8, 1}}, at::kFloat);
    const std::int64_t base_conv = width * 3 + width + width * width + width, softmax = 4 * width * width, norms = 3 * 2 * width;
    CHECK(model.layers() == 2);
    CHECK(model.parameters().count() == vocabulary * width + base_conv + softmax + norms);
    // two earlier inputs of the convolution; keys and values of every token
    CHECK(model.state_bytes(10) == 4 * (2 * width + 2 * 10 * width));
    CHECK(model.state_bytes(20) == 4 * (2 * width + 2 * 20 * width));
}

TEST_CASE("model: output projections are rescaled by the number of residual branches") {
    for (const auto& [mlp, branches] : {std::pair{Mlp::none, 2}, {Mlp::identity_with_norm, 4}, {Mlp::swiglu, 4}}) {
        RunSpec spec = small({"softmax", "softmax"});
        spec.model.width = 64;
        spec.model.init = Init::normal;
        spec.model.mlp = mlp;
        Model model = build(spec, {{7, 1}});
        const auto size = [&](const std::string& name) { return leaves(model).at(name).square().mean().sqrt().item<double>(); };
        CHECK(size("layers.0.mixer.qkv.weight") == Approx(0.02).epsilon(0.03));
        CHECK(size("layers.0.mixer.out.weight") == Approx(0.02 / std::sqrt(branches)).epsilon(0.03));
        if (mlp == Mlp::swiglu) CHECK(size("layers.1.mlp.down.weight") == Approx(0.02 / std::sqrt(branches)).epsilon(0.03));
    }
}

TEST_CASE("model: an unknown mixer in the layers is the registry's error") {
    CHECK_THROWS_WITH(build(small({"softmax", "sofmax"}), {{7, 1}}),
                      ContainsSubstring("unknown mixer 'sofmax'; did you mean 'softmax'?"));
}

TEST_CASE("a layer is built with the options of its own") {
    RunSpec spec = small({"base_conv", "base_conv", "base_conv"});
    const MixerKind& kind = get_mixer("base_conv");
    const auto options = [&](const std::string& kernel) {
        const std::shared_ptr<void> object = kind.schema().make_default();
        Diagnostics errors;
        kind.schema().read(object.get(), parse_yaml("test", "kernel: " + kernel), "test", errors);
        errors.throw_if_any();
        return object;
    };
    spec.mixers["base_conv"] = options("5");
    spec.layers[1] = options("9");
    Model model = build(spec, {{1, 1}});
    std::vector<std::int64_t> taps;
    for (const nn::ParameterInfo& info : model.parameters().table())
        if (info.name.ends_with("conv.kernel")) taps.push_back(info.shape.at(1));
    CHECK(taps == std::vector<std::int64_t>{5, 9, 5});
}
