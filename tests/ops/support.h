// What the tests of this floor share: random inputs, comparisons, the golden file, and gradients of a function of several tensors.
#pragma once

#include "core/philox.h"
#include "ops/recurrence.h"
#include "ops/tensor.h"

#include <ATen/ops/equal.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "catch.h"

namespace palimpsest::test {

// Reproducible on every platform, in fp64.
class Random {
public:
    explicit Random(std::uint64_t seed) : rng_(seed, Stream::features, 0) {}
    double uniform() { return (rng_.next() + 0.5) / 4294967296.0; }
    at::Tensor uniform(std::vector<std::int64_t> sizes, double low = 0, double high = 1) {
        return fill(std::move(sizes), [&] { return low + (high - low) * uniform(); });
    }
    at::Tensor normal(std::vector<std::int64_t> sizes) {
        return fill(std::move(sizes),
                    [&] { return std::sqrt(-2 * std::log(uniform())) * std::cos(2 * 3.141592653589793 * uniform()); });
    }

private:
    at::Tensor fill(std::vector<std::int64_t> sizes, const std::function<double()>& draw) {
        at::Tensor x = at::empty(sizes, at::kDouble);
        double* p = x.mutable_data_ptr<double>();
        for (std::int64_t i = 0; i < x.numel(); ++i) p[i] = draw();
        return x;
    }
    Rng rng_;
};

inline double rms(const at::Tensor& x) { return x.numel() == 0 ? 0 : x.to(at::kDouble).square().mean().sqrt().item<double>(); }

// Distance relative to the reference: RMS over RMS, and the largest error over 20 RMS, which sees a single bad row. What has faded
// below 1e-30 is no number of fp32.
inline double distance(const at::Tensor& x, const at::Tensor& reference) {
    REQUIRE(x.sizes() == reference.sizes());
    if (x.numel() == 0) return 0;
    const at::Tensor difference = x.to(at::kDouble) - reference.to(at::kDouble);
    const double scale = std::max(rms(reference), x.scalar_type() == at::kFloat ? 1e-30 : 0.0);
    const double d = rms(difference), largest = difference.abs().max().item<double>();
    if (!std::isfinite(d)) return INFINITY;
    return scale == 0 ? d : std::max(d, largest / 20) / scale;
}

inline bool same_bits(const at::Tensor& a, const at::Tensor& b) { return at::equal(a, b); }

using Tensors = std::map<std::string, at::Tensor>;

// Gradients of sum over outputs of (output * cotangent) by each named input; outputs without a cotangent do not count.
inline Tensors gradients(const Tensors& inputs, const Tensors& outputs, const Tensors& cotangents) {
    std::vector<at::Tensor> results, seeds, leaves;
    for (const auto& [name, cotangent] : cotangents) {
        results.push_back(outputs.at(name));
        seeds.push_back(cotangent.to(results.back().scalar_type()));
    }
    for (const auto& [name, leaf] : inputs) leaves.push_back(leaf);
    const auto found = torch::autograd::grad(results, leaves, seeds, std::nullopt, false, true);
    Tensors out;
    std::size_t i = 0;
    for (const auto& [name, leaf] : inputs) {
        out[name] = found[i].defined() ? found[i] : at::zeros_like(leaf);
        ++i;
    }
    return out;
}

inline at::Tensor leaf(const at::Tensor& x, at::ScalarType type = at::kDouble) {
    return x.detach().to(type).clone().set_requires_grad(true);
}

// All datasets of one group of tests/golden/recurrences.h5, as fp64.
Tensors golden(const std::string& group);

// The random inputs of one case, by name: q, k, u, e, log_decay, initial_state (those the case has), and cotangents.
struct Shape {
    std::int64_t N = 2, T = 1, H = 2, K = 5, V = 3, M = 1;
};
enum class Gate { none, scalar, channel };
const std::vector<Gate> all_gates = {Gate::none, Gate::scalar, Gate::channel};
const std::vector<ops::Backend> both = {ops::Backend::reference, ops::Backend::chunk};
const char* name_of(ops::Backend backend);
struct Case {
    Tensors inputs, cotangents;
    double scale = 1;
    std::int64_t micro_steps = 1, chunk = 64;
    std::string what;
};
ops::RecurrenceInput make_input(const Tensors& inputs, const Case& c);
Tensors outputs_of(const ops::RecurrenceOutput& out);
Case random_case(std::uint64_t seed, const Shape& shape, Gate gate, bool erase, bool initial);

struct Result {
    Tensors outputs, gradients;
};
// Runs a backend's own form on the case in the given precision.
Result run_case(const Case& c, ops::Backend backend, at::ScalarType type = at::kDouble);
// The definition, written once more in fp64 and differentiated by autograd: decay, error, write, read.
Result plain_loop(const Case& c);

// Limits of relative distance (tests/ops: spec of the family).
struct Limit {
    double outputs, gradients, decay_gradient;
};
constexpr Limit fp64{1e-12, 1e-11, 1e-11}, fp32_reference{1e-5, 2e-5, 2e-5}, fp32_chunk{2e-5, 1e-4, 5e-4};
// Checks every output and every gradient that `expected` has; NaN is never within a limit. `factor` widens all limits.
void compare(const Result& found, const Result& expected, const Limit& limit, double factor = 1);
// A cumulative sum of G has an error of |G| eps, and so have the differences that the chunk form makes of it: the factor for its
// limits.
double depth(const at::Tensor& log_decay);

}  // namespace palimpsest::test
