// Numbers of every registered mixer: its backends agree, and its gradients are those of its outputs.
#include "bench.h"

#include <cmath>

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
    for (const Variant& variant : variants()) {
        for (const std::int64_t length : {1, 17, 64, 65, 100}) {
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

TEST_CASE("gradients are those of finite differences, parameter by parameter") {
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
        const double h = 1e-5;
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
