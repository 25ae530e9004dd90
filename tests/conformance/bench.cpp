#include "bench.h"

#include "core/error.h"
#include "core/philox.h"
#include "option_words.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numbers>

namespace palimpsest::conformance {
namespace {

const Threads one_thread(1);

// Combinations worth testing beyond one change at a time, and widths other than the default. Not needed for a new mixer.
const std::vector<Variant>& combinations() {
    static const std::vector<Variant> table = {
        {"softmax", {{"heads", "2"}, {"qk_norm", "rms"}}, true},
        {"softmax", {{"heads", "4"}, {"qk_norm", "l2"}, {"bias", "true"}}, true},
        {"base_conv", {{"kernel", "1"}}, false},
        {"base_conv", {{"kernel", "5"}, {"activation", "silu"}}, false},
        {"linear", {{"heads", "4"}, {"expand_v", "2"}, {"short_conv", "0"}}, false},
        {"linear", {{"feature_map", "identity"}, {"normalise", "false"}, {"expand_k", "0.5"}}, false},
        {"linear", {{"feature_map", "exp"}, {"qk_norm", "l2"}, {"short_conv", "2"}}, false},
        {"linear", {{"feature_map", "dpfp"}, {"nu", "5"}, {"qk_norm", "l2"}, {"eps", "1e-2"}}, false},
        {"linear", {{"feature_map", "taylor"}, {"normalise", "false"}, {"expand_k", "0.5"}, {"expand_v", "2"}}, false},
        {"gla", {{"heads", "4"}, {"short_conv", "3"}, {"gate_scale", "1"}, {"gate_rank", "2"}}, false},
        {"gla", {{"heads", "1"}, {"expand_k", "1.5"}, {"expand_v", "0.5"}}, false},
        {"kda", {{"heads", "1"}, {"value_heads", "4"}, {"expand_k", "0.5"}, {"expand_v", "2"}, {"gate", "bounded"}}, false},
        {"kda", {{"short_conv", "0"}, {"negative_eigenvalues", "true"}, {"expand_k", "1.5"}, {"heads", "4"}}, false},
        {"delta", {{"heads", "4"}, {"expand_k", "0.5"}, {"expand_v", "2"}, {"short_conv", "0"}}, false},
        {"delta", {{"qk_activation", "relu"}, {"qk_norm", "sum"}}, false},
        {"delta", {{"beta", "false"}, {"heads", "1"}, {"short_conv", "1"}}, false},
        {"gated_delta", {{"heads", "1"}, {"value_heads", "4"}, {"expand_k", "0.5"}, {"expand_v", "2"}}, false},
        {"gated_delta", {{"short_conv", "0"}, {"negative_eigenvalues", "true"}}, false},
        {"retnet", {{"heads", "4"}, {"expand_v", "1"}, {"short_conv", "4"}, {"decay_exponent", "1"}}, false},
        {"mamba2", {{"heads", "4"}, {"groups", "2"}, {"state", "8"}, {"short_conv", "0"}}, false},
        {"mamba2", {{"heads", "2"}, {"groups", "2"}, {"state", "5"}, {"expand", "1"}, {"short_conv", "2"}}, false},
        {"performer", {{"heads", "4"}, {"features", "7"}, {"short_conv", "0"}, {"out_norm", "false"}}, false},
        {"performer", {{"kernel", "relu"}, {"qk_norm", "l2"}, {"short_conv", "2"}}, false},
    };
    return table;
}

std::vector<Variant> every_variant() {
    std::vector<Variant> all;
    for (const std::string& name : mixer_names()) {
        all.push_back({name, {}, false});
        for (const Option& option : get_mixer(name).schema().options()) {
            for (const std::string& word : option_words(option))
                if (word != option.default_text) all.push_back({name, {{option.name, word}}, false});
        }
    }
    for (const Variant& variant : combinations())
        if (find_mixer(variant.mixer)) all.push_back(variant);
    const auto refused = [](const Variant& variant) {
        try {
            Unit(variant, {1}, at::kFloat);
            return false;
        } catch (const Error&) {
            if (variant.options.empty()) throw;  // the defaults must work
            return true;
        }
    };
    all.erase(std::remove_if(all.begin(), all.end(), refused), all.end());
    return all;
}

}  // namespace

Deterministic::Deterministic() : before_(at::globalContext().deterministicAlgorithms()) {
    ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);  // cuBLAS asks for it before its first product
    at::globalContext().setDeterministicAlgorithms(true, false);
}

Deterministic::~Deterministic() { at::globalContext().setDeterministicAlgorithms(before_, false); }

Threads::Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }

Threads::~Threads() { at::set_num_threads(before_); }

at::Device test_device() {
    const char* name = std::getenv("PALIMPSEST_TEST_DEVICE");
    return at::Device(name && *name ? name : "cpu");
}

std::string Variant::title() const {
    std::string text = mixer;
    for (const auto& [name, value] : options) text += fmt::format(" {}={}", name, value);
    return rotary ? text + ", rotary" : text;
}

const std::vector<Variant>& variants() {
    static const std::vector<Variant> all = every_variant();
    return all;
}

Unit::Unit(const Variant& variant, const std::vector<std::uint64_t>& lane_seeds, at::ScalarType dtype, ops::Backend backend) {
    const MixerKind& kind = get_mixer(variant.mixer);
    options = kind.schema().make_default();
    Value map = Value::map();
    for (const auto& [name, value] : variant.options) map.set(name, Value::scalar(value));
    Diagnostics errors;
    kind.schema().read(options.get(), map, "mixers." + variant.mixer, errors);
    errors.throw_if_any();

    model.width = width;
    model.init = Init::torch_default;  // large enough that gates and attention leave their linear range
    model.rescale_output = false;
    BuildContext context;
    context.scope.parameters = &parameters;
    context.scope.prefix = "mixer";
    context.scope.model = &model;
    context.options = options.get();
    context.width = width;
    context.layers = 1;
    context.longest = longest;
    context.rotary = variant.rotary;
    context.backend = backend;
    mixer = kind.build(context);
    parameters.allocate(lane_seeds, std::vector<double>(lane_seeds.size(), 1), test_device(), dtype);
}

std::vector<std::pair<std::string, at::Tensor>> Unit::parameter_gradients() const {
    std::vector<std::pair<std::string, at::Tensor>> gradients;
    for (std::size_t i = 0; i < parameters.table().size(); ++i) {
        if (parameters.table()[i].trained) gradients.emplace_back(parameters.table()[i].name, parameters.leaf(i).grad().clone());
    }
    return gradients;
}

Unit::Gradients Unit::differentiate(const at::Tensor& x, const at::Tensor& weight) {
    parameters.zero_gradients();
    const at::Tensor input = x.detach().clone().set_requires_grad(true);
    const at::Tensor y = mixer->forward(input, nullptr, StepContext{});
    (y * weight).sum().backward();
    return {y.detach(), input.grad(), parameter_gradients()};
}

at::Tensor noise(const std::vector<std::int64_t>& shape, std::uint64_t key, at::ScalarType dtype) {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    at::Tensor values = at::empty(shape, at::kDouble);
    double* out = values.mutable_data_ptr<double>();
    Rng rng(key, Stream::test, 0);
    for (std::int64_t i = 0; i < count; ++i) {
        const double u = (rng.next() + 0.5) * 0x1p-32, angle = 2 * std::numbers::pi * rng.next() * 0x1p-32;
        out[i] = std::sqrt(-2 * std::log(u)) * std::cos(angle);
    }
    return values.to(test_device(), dtype);
}

Distance distance(const at::Tensor& value, const at::Tensor& reference) {
    PALIMPSEST_ASSERT(value.sizes() == reference.sizes(), "{} and {} elements", value.numel(), reference.numel());
    if (reference.numel() == 0) return {};
    const at::Tensor exact = reference.detach().to(at::kCPU, at::kDouble), error = value.detach().to(at::kCPU, at::kDouble) - exact;
    const double scale = std::max(exact.square().mean().sqrt().item<double>(), 1e-2);
    return {error.square().mean().sqrt().item<double>() / scale, error.abs().max().item<double>() / scale};
}

bool within(const at::Tensor& value, const at::Tensor& reference, double limit) {
    const Distance d = distance(value, reference);
    const bool good = d.rms <= limit && d.largest <= 20 * limit;  // false for NaN
    if (!good) UNSCOPED_INFO("relative error " << d.rms << ", largest " << d.largest << ", limit " << limit);
    return good;
}

}  // namespace palimpsest::conformance
