// The kernels of AdamW, where there is a GPU: against the ATen form, against AdamW in double, and bit for bit against themselves.
#include "ops/cuda/adamw.h"
#include "ops/cuda/optimizer.h"
#include "train/optimizer.h"

#include <ATen/Context.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "catch.h"

using namespace palimpsest;
using train::Cause;
using train::Optimizer;

namespace {

const at::Device gpu(at::kCUDA, 0);

// A matrix of several pieces, the last of them short, a vector that is not decayed, one that never is, and one that is not trained;
// sizes that are no multiples of a warp.
void declare(nn::Parameters& parameters) {
    parameters.declare("matrix", {61, 83}, nn::InitRule::normal(0.5), nn::Decay::yes);
    parameters.declare("bias", {37}, nn::InitRule::normal(0.5), nn::Decay::no);
    parameters.declare("fixed", {130}, nn::InitRule::normal(0.5), nn::Decay::yes, false);
    parameters.declare("rate", {3}, nn::InitRule::normal(0.5), nn::Decay::never);
}

std::vector<LaneValues> values_of_lanes(std::int64_t lanes, double weight_decay) {
    std::vector<LaneValues> out;
    for (std::int64_t r = 0; r < lanes; ++r) {
        const auto i = static_cast<double>(r);
        out.push_back(
            {static_cast<std::uint64_t>(r + 1), 1e-2 / (1 + i), weight_decay * (1 + i), 0.9 - 0.02 * i, 0.999 - 0.01 * i, 1});
    }
    return out;
}

// One optimizer and its parameters, which begin the same for equal numbers of lanes.
struct Bench {
    nn::Parameters parameters;
    std::unique_ptr<Optimizer> optimizer;
    at::Tensor loss;

    Bench(at::Device device, const std::vector<LaneValues>& lanes, const TrainSpec& spec, Optimizer::Path path) {
        declare(parameters);
        std::vector<std::uint64_t> seeds;
        for (const LaneValues& lane : lanes) seeds.push_back(lane.seed);
        parameters.allocate(seeds, std::vector<double>(lanes.size(), 1), device);
        optimizer = train::make_optimizer(parameters, lanes, spec, path);
        loss = at::ones({static_cast<std::int64_t>(lanes.size())}, at::TensorOptions().device(device));
    }
    // What lane r adds to the gradient of step t depends on its parameters' places alone.
    void set_gradients(int t) {
        at::Tensor gradients = at::zeros({parameters.gradients().numel()}, at::kFloat);
        for (const nn::ParameterInfo& info : parameters.table())
            for (std::int64_t i = 0; info.trained && i < parameters.lanes() * info.numel; ++i)
                gradients.data_ptr<float>()[info.offset + i] =
                    static_cast<float>(std::sin(0.7 * static_cast<double>(i + 1) * (t + 1)) * (i % 3 ? 0.03 : 0.4));
        parameters.gradients().copy_(gradients);
    }
    // One element of the gradient of a parameter in a lane.
    void spoil(std::size_t parameter, std::int64_t lane, float with) {
        const nn::ParameterInfo& info = parameters.table()[parameter];
        parameters.gradients().narrow(0, info.offset + (lane + 1) * info.numel - 1, 1).fill_(with);
    }
    void step(int t, double factor = 0.8) {
        set_gradients(t);
        optimizer->step(loss, factor);
    }
    // Values and both moments, on the CPU.
    std::vector<at::Tensor> buffers() {
        std::vector<at::Tensor> out = {parameters.values().detach().cpu().clone()};
        for (const Optimizer::State& state : optimizer->states()) out.push_back(state.values.cpu().clone());
        return out;
    }
    at::Tensor lane(const at::Tensor& flat, std::int64_t lane) {
        std::vector<at::Tensor> parts;
        for (const nn::ParameterInfo& info : parameters.table())
            parts.push_back(flat.narrow(0, info.offset + lane * info.numel, info.numel));
        return at::cat(parts);
    }
    // What the optimizer knows of its lanes, in whole numbers.
    std::array<at::Tensor, 4> counters() {
        return {optimizer->live().to(at::kLong).cpu(), optimizer->updates().cpu(), optimizer->skipped().cpu(),
                optimizer->cause().cpu()};
    }
};

bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
    return a.nbytes() == b.nbytes() && std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0;
}

// Single precision keeps 24 bits; what is compared is a difference of sums of a few roundings each.
void check_close(const at::Tensor& a, const at::Tensor& b) {
    const at::Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
    CHECK(((x - y).abs() - 2e-6 * y.abs()).max().item<double>() < 1e-6);
}

void check_same_numbers(Bench& kernels, Bench& reference) {
    const std::vector<at::Tensor> a = kernels.buffers(), b = reference.buffers();
    for (std::size_t i = 0; i < a.size(); ++i) check_close(a[i], b[i]);
    const auto counted = kernels.counters(), expected = reference.counters();
    for (std::size_t i = 0; i < counted.size(); ++i) CHECK(counted[i].equal(expected[i]));
}

TrainSpec options(double clip, NonFinite non_finite = NonFinite::stop) {
    TrainSpec out;
    out.clip = clip;
    out.non_finite = non_finite;
    return out;
}

}  // namespace

TEST_CASE("the kernels of AdamW update as its ATen form and as the CPU", "[train][optimizer][cuda]") {
    if (!at::Context::hasCUDA()) return;
    const std::int64_t lanes = GENERATE(1, 3, 16);
    const double clip = GENERATE(0.0, 0.5), weight_decay = GENERATE(0.0, 0.1);
    INFO(lanes << " lanes, clip " << clip << ", weight decay " << weight_decay);
    const std::vector<LaneValues> values = values_of_lanes(lanes, weight_decay);
    Bench kernels(gpu, values, options(clip), Optimizer::Path::automatic),
        tensors(gpu, values, options(clip), Optimizer::Path::tensor), host(at::kCPU, values, options(clip), Optimizer::Path::raw);
    for (int t = 0; t < 20; ++t)
        for (Bench* bench : {&kernels, &tensors, &host}) bench->step(t);
    check_same_numbers(kernels, tensors);
    check_same_numbers(kernels, host);
    CHECK((kernels.optimizer->gradient_norm().cpu() - host.optimizer->gradient_norm()).abs().max().item<double>() < 1e-9);
}

TEST_CASE("the kernels of AdamW agree with AdamW in double", "[train][optimizer][cuda]") {
    if (!at::Context::hasCUDA()) return;
    const LaneValues lane{1, 1e-2, 0.1, 0.9, 0.999, 1};
    Bench kernels(gpu, {lane}, options(0.5), Optimizer::Path::raw);
    at::Tensor value = kernels.buffers()[0].to(at::kDouble), first = at::zeros_like(value), second = at::zeros_like(value);
    at::Tensor decayed = at::zeros_like(value);
    const nn::ParameterInfo& matrix = kernels.parameters.table()[0];
    decayed.narrow(0, matrix.offset, matrix.numel).fill_(1);
    for (int t = 0; t < 20; ++t) {
        kernels.step(t, 0.8);
        at::Tensor g = kernels.parameters.gradients().cpu().to(at::kDouble);
        const double norm = std::sqrt(g.square().sum().item<double>()), lr = lane.lr * 0.8;
        g = g * std::min(1.0, 0.5 / (norm + 1e-6));
        first = first * lane.beta1 + g * (1 - lane.beta1);
        second = second * lane.beta2 + g * g * (1 - lane.beta2);
        const at::Tensor mean = first / (1 - std::pow(lane.beta1, t + 1)), square = second / (1 - std::pow(lane.beta2, t + 1));
        value = value * (1 - decayed * (lr * lane.weight_decay)) - mean / (square.sqrt() + 1e-8) * lr;
    }
    const nn::ParameterInfo& fixed = kernels.parameters.table()[2];
    const at::Tensor found = kernels.buffers()[0];
    CHECK((found.to(at::kDouble) - value).abs().max().item<double>() < 1e-6);
    CHECK((found.narrow(0, fixed.offset, fixed.numel).to(at::kDouble) - value.narrow(0, fixed.offset, fixed.numel))
              .abs()
              .max()
              .item<double>() == 0);
}

TEST_CASE("the kernels of AdamW leave a lane that is not finite, or not live, bit for bit", "[train][optimizer][cuda]") {
    if (!at::Context::hasCUDA()) return;
    const NonFinite policy = GENERATE(NonFinite::stop, NonFinite::skip, NonFinite::warn);
    const std::int64_t lanes = GENERATE(3, 16);
    const std::vector<LaneValues> values = values_of_lanes(lanes, 0.1);
    Bench kernels(gpu, values, options(1, policy), Optimizer::Path::raw),
        tensors(gpu, values, options(1, policy), Optimizer::Path::tensor);
    std::vector<at::Tensor> before;
    for (Bench* bench : {&kernels, &tensors}) {
        bench->step(0);
        if (bench == &kernels) before = bench->buffers();
        // The last lane has ended; lane 0 has a loss, lane 1 two gradients that are not finite.
        bench->optimizer->live()[lanes - 1].fill_(false);
        bench->loss[0].fill_(std::numeric_limits<float>::quiet_NaN());
        bench->set_gradients(1);
        bench->spoil(0, 1, std::numeric_limits<float>::quiet_NaN());
        bench->spoil(1, 1, std::numeric_limits<float>::infinity());
        bench->optimizer->step(bench->loss, 0.8);
        bench->loss.fill_(1);
    }
    check_same_numbers(kernels, tensors);
    const std::vector<at::Tensor> after = kernels.buffers();
    for (std::size_t i = 0; i < after.size(); ++i)
        for (std::int64_t r = 0; r < lanes; ++r) {
            INFO("buffer " << i << ", lane " << r);
            const bool kept = r <= 1 || r == lanes - 1;
            CHECK(same_bytes(kernels.lane(after[i], r), kernels.lane(before[i], r)) == kept);
        }
    const at::Tensor cause = kernels.optimizer->cause().cpu(), skipped = kernels.optimizer->skipped().cpu();
    CHECK(cause[0].item<std::int64_t>() == Cause::loss);
    CHECK(cause[1].item<std::int64_t>() == Cause::first_gradient + 1);
    CHECK(skipped[0].item<std::int64_t>() == 1);
    CHECK(skipped[lanes - 1].item<std::int64_t>() == 0);

    for (Bench* bench : {&kernels, &tensors}) bench->step(2);
    check_same_numbers(kernels, tensors);
    CHECK(kernels.optimizer->live().cpu()[0].item<bool>() == (policy != NonFinite::stop));
}

TEST_CASE("the kernels of AdamW give the same bits again, and a lane those that it has alone", "[train][optimizer][cuda]") {
    if (!at::Context::hasCUDA()) return;
    const std::vector<LaneValues> values = values_of_lanes(16, 0.1);
    Bench once(gpu, values, options(0.5), Optimizer::Path::raw), again(gpu, values, options(0.5), Optimizer::Path::raw);
    Bench alone(gpu, {values[0]}, options(0.5), Optimizer::Path::raw);
    for (int t = 0; t < 10; ++t) {
        for (Bench* bench : {&once, &again, &alone}) bench->set_gradients(t);
        // Lane 0 of a pack has the gradients of the run alone.
        for (Bench* pack : {&once, &again})
            for (std::size_t p = 0; p < pack->parameters.table().size(); ++p) {
                const nn::ParameterInfo &packed = pack->parameters.table()[p], &single = alone.parameters.table()[p];
                pack->parameters.gradients()
                    .narrow(0, packed.offset, packed.numel)
                    .copy_(alone.parameters.gradients().narrow(0, single.offset, single.numel));
            }
        for (Bench* bench : {&once, &again, &alone}) bench->optimizer->step(bench->loss, 0.8);
    }
    const std::vector<at::Tensor> a = once.buffers(), b = again.buffers(), c = alone.buffers();
    for (std::size_t i = 0; i < a.size(); ++i) {
        CHECK(same_bytes(a[i], b[i]));
        CHECK(same_bytes(once.lane(a[i], 0), alone.lane(c[i], 0)));
    }
    CHECK(same_bytes(once.optimizer->gradient_norm().cpu(), again.optimizer->gradient_norm().cpu()));
}

TEST_CASE("the kernels of AdamW work in place, at addresses that stay", "[train][optimizer][cuda]") {
    if (!at::Context::hasCUDA()) return;
    Bench bench(gpu, values_of_lanes(3, 0.1), options(1), Optimizer::Path::raw);
    const auto addresses = [&] {
        Optimizer& o = *bench.optimizer;
        return std::array<const void*, 8>{o.live().data_ptr(),
                                          o.updates().data_ptr(),
                                          o.skipped().data_ptr(),
                                          o.cause().data_ptr(),
                                          o.gradient_norm().data_ptr(),
                                          bench.parameters.values().data_ptr(),
                                          o.state("first_moment").data_ptr(),
                                          o.state("second_moment").data_ptr()};
    };
    const auto before = addresses();
    for (int t = 0; t < 3; ++t) bench.step(t);
    CHECK(addresses() == before);
}

TEST_CASE("a build with CUDA has the kernels of AdamW", "[train][optimizer]") {
    if (!at::Context::hasCUDART()) return;
    CHECK(ops::judge_kernels != nullptr);
    CHECK(ops::adamw_kernel != nullptr);
}
