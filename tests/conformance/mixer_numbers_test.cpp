// Numbers of every registered mixer: its backends agree, and its gradients are those of its outputs.
#include "bench.h"

#include <cmath>
#include <map>
#include <tuple>

using namespace palimpsest;
using namespace palimpsest::conformance;

namespace {

void check_agreement(const Unit::Gradients& value, const Unit::Gradients& oracle, double forward, double backward) {
    CHECK(within(value.y, oracle.y, forward));
    CHECK(within(value.x, oracle.x, backward));
    for (std::size_t i = 0; i < oracle.parameters.size(); ++i) {
        INFO(oracle.parameters[i].first);
        CHECK(within(value.parameters[i].second, oracle.parameters[i].second, backward));
    }
}

}  // namespace

TEST_CASE("agreement: the chunk form and the reference are one function") {
    // Around the edges of the chunk form's blocks of 16 and chunks of 64.
    for (const Variant& variant : variants()) {
        for (const std::int64_t length : {1, 2, 15, 16, 17, 63, 64, 65, 100}) {
            INFO(variant.title() << ", " << length << " tokens");
            const at::Tensor x = noise({2, 2, length, width}, 1, at::kDouble),
                             weight = noise({2, 2, length, width}, 2, at::kDouble);
            Unit exact(variant, {7, 8}, at::kDouble, ops::Backend::reference);
            const Unit::Gradients oracle = exact.differentiate(x, weight);
            {
                INFO("fp64, chunk");
                Unit unit(variant, {7, 8}, at::kDouble, ops::Backend::chunk);
                check_agreement(unit.differentiate(x, weight), oracle, 1e-12, 1e-11);
            }
            if (length != 1 && length != 17 && length != 64 && length != 100) continue;
            // The same numbers, rounded to fp32, are the parameters of the fp32 units; their inputs are rounded here.
            const at::Tensor x32 = x.to(at::kFloat), weight32 = weight.to(at::kFloat);
            exact.parameters.values().copy_(exact.parameters.values().to(at::kFloat));
            const Unit::Gradients rounded = exact.differentiate(x32.to(at::kDouble), weight32.to(at::kDouble));
            {
                INFO("fp32, reference");
                Unit unit(variant, {7, 8}, at::kFloat, ops::Backend::reference);
                check_agreement(unit.differentiate(x32, weight32), rounded, 1e-5, 1e-4);
            }
            {
                INFO("fp32, chunk");
                Unit unit(variant, {7, 8}, at::kFloat, ops::Backend::chunk);
                check_agreement(unit.differentiate(x32, weight32), rounded, 2e-5, 1e-4);
            }
        }
    }
}

TEST_CASE("agreement: from a memory that is not empty, its gradient included") {
    constexpr std::int64_t before = 20, length = 33;
    using Named = std::map<std::string, at::Tensor>;
    struct Continued {
        Named outputs, gradients;  // y and the state it ends in; gradients of x and of the state it starts from
    };
    for (const Variant& variant : variants()) {
        // The state that 20 tokens leave, every number of it times one of its own: the state of no sequence, and of full rank. A
        // factor above 0 keeps the sign of a normaliser.
        State start;
        StepContext context;
        {
            const at::NoGradGuard no_grad;
            Unit(variant, {7, 8}, at::kDouble).mixer->forward(noise({2, 2, before, width}, 3, at::kDouble), &start, context);
        }
        context.position = before;
        std::uint64_t key = 4;
        for (auto& [name, tensor] : start.tensors())
            tensor = tensor * (1 + 0.5 * at::tanh(noise(tensor.sizes().vec(), key++, at::kDouble)));
        const at::Tensor x = noise({2, 2, length, width}, 1, at::kDouble), weight = noise({2, 2, length, width}, 2, at::kDouble);

        const auto continued = [&](at::ScalarType type, ops::Backend backend) {
            Unit unit(variant, {7, 8}, type, backend);
            const auto leaf = [type](const at::Tensor& value) { return value.to(type, false, true).requires_grad_(true); };
            Named leaves = {{"x", leaf(x)}};
            State state;
            for (const auto& [name, tensor] : start.tensors()) state[name] = leaves["state " + name] = leaf(tensor);
            Continued out;
            out.outputs["y"] = unit.mixer->forward(leaves["x"], &state, context);
            at::Tensor loss = (out.outputs["y"] * weight.to(type)).sum();
            std::uint64_t seed = 40;
            for (const auto& [name, tensor] : state.tensors()) {
                out.outputs["state " + name] = tensor;
                if (tensor.requires_grad()) loss = loss + (tensor * noise(tensor.sizes().vec(), seed++, type)).sum();
            }
            loss.backward();
            for (const auto& [name, tensor] : leaves)
                out.gradients[name] = tensor.grad().defined() ? tensor.grad() : at::zeros_like(tensor);
            return out;
        };
        const Continued oracle = continued(at::kDouble, ops::Backend::reference);
        for (const auto& [type, backend, forward, backward] : {std::tuple{at::kDouble, ops::Backend::chunk, 1e-12, 1e-11},
                                                               {at::kFloat, ops::Backend::reference, 1e-5, 1e-4},
                                                               {at::kFloat, ops::Backend::chunk, 2e-5, 1e-4}}) {
            INFO(variant.title() << (type == at::kDouble ? ", fp64" : ", fp32")
                                 << (backend == ops::Backend::chunk ? ", chunk" : ", reference"));
            const Continued found = continued(type, backend);
            for (const auto& [name, tensor] : oracle.outputs) {
                INFO(name);
                CHECK(within(found.outputs.at(name), tensor, forward));
            }
            for (const auto& [name, tensor] : oracle.gradients) {
                INFO("gradient of " << name);
                CHECK(within(found.gradients.at(name), tensor, backward));
            }
        }
        INFO(variant.title());
        if (start.has("memory")) CHECK(oracle.gradients.at("state memory").abs().max().item<double>() > 0);
    }
}

TEST_CASE("gradients (pitfall 37) are those of finite differences, parameter by parameter", "[pitfall]") {
    for (const Variant& variant : variants()) {
        Unit unit(variant, {7, 8}, at::kDouble);
        const at::Tensor x = noise({2, 2, 20, width}, 1, at::kDouble), weight = noise({2, 2, 20, width}, 2, at::kDouble);
        const Unit::Gradients gradients = unit.differentiate(x, weight);
        const at::NoGradGuard no_grad;
        const auto loss = [&](const at::Tensor& input) {
            return (unit.mixer->forward(input, nullptr, StepContext{}) * weight).sum().item<double>();
        };
        const auto agree = [&](double difference, const at::Tensor& gradient, const at::Tensor& direction) {
            const double predicted = (gradient * direction).sum().item<double>();
            // relative to the size of the gradient, of which the prediction is a random projection
            const double scale = gradient.square().sum().sqrt().item<double>();
            INFO("difference " << difference << ", predicted " << predicted << ", norm of the gradient " << scale);
            CHECK(std::abs(difference - predicted) <= 1e-6 * scale + 1e-8);
        };
        const double h = 1e-6;  // a head whose output is nearly zero turns fast under its norm
        {
            INFO(variant.title() << ", x");
            const at::Tensor direction = noise({2, 2, 20, width}, 3, at::kDouble);
            agree((loss(x + h * direction) - loss(x - h * direction)) / (2 * h), gradients.x, direction);
        }
        std::size_t trained = 0;
        for (std::size_t i = 0; i < unit.parameters.table().size(); ++i) {
            const nn::ParameterInfo& info = unit.parameters.table()[i];
            if (!info.trained) continue;
            INFO(variant.title() << ", " << info.name);
            at::Tensor leaf = unit.parameters.leaf(i).detach();
            const at::Tensor start = leaf.clone(), direction = noise(leaf.sizes().vec(), 4 + i, at::kDouble);
            leaf.copy_(start + h * direction);
            const double above = loss(x);
            leaf.copy_(start - h * direction);
            const double below = loss(x);
            leaf.copy_(start);
            agree((above - below) / (2 * h), gradients.parameters[trained++].second, direction);
        }
    }
}
