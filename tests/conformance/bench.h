// What the conformance tests share: every registered mixer in every variant of its options, standing alone with its own parameters,
// on inputs that repeat. A new mixer is tested here before its author writes a test.
#pragma once

#include "mixers/mixer.h"

#include <string>
#include <utility>
#include <vector>

#include "catch.h"

namespace palimpsest::conformance {

// CPU, or what PALIMPSEST_TEST_DEVICE names (cuda).
at::Device test_device();

struct Variant {
    std::string mixer;
    std::vector<std::pair<std::string, std::string>> options;  // that differ from the defaults
    bool rotary = false;
    std::string title() const;  // "softmax heads=2 qk_norm=rms, rotary"
};

// Of every registered mixer: the defaults, each option with two or more fixed words at each of its other words, one at a time, and
// the combinations that a table adds. Combinations that the mixer itself refuses (Error) are left out.
const std::vector<Variant>& variants();

// One mixer of one variant with parameters of its own.
struct Unit {
    Unit(const Variant& variant, const std::vector<std::uint64_t>& lane_seeds, at::ScalarType dtype,
         ops::Backend backend = ops::Backend::automatic);

    // Output and the gradients of sum(y * weight): x's, then those of the trained parameters.
    struct Gradients {
        at::Tensor y, x;
        std::vector<std::pair<std::string, at::Tensor>> parameters;  // name, [R, ...]
    };
    Gradients differentiate(const at::Tensor& x, const at::Tensor& weight);
    // The parameters' gradients as they stand.
    std::vector<std::pair<std::string, at::Tensor>> parameter_gradients() const;

    ModelSpec model;
    nn::Parameters parameters;
    std::shared_ptr<void> options;
    std::unique_ptr<Mixer> mixer;
};

constexpr std::int64_t width = 16;
constexpr std::int64_t longest = 128;

class Deterministic {  // torch's deterministic algorithms while it lives
public:
    Deterministic();
    ~Deterministic();
    Deterministic(const Deterministic&) = delete;
    Deterministic& operator=(const Deterministic&) = delete;

private:
    bool before_;
};

// These tensors are small: one thread is faster than the barrier of two, so tests run on one, and those of repeats take two.
class Threads {
public:
    explicit Threads(int count);
    ~Threads();
    Threads(const Threads&) = delete;
    Threads& operator=(const Threads&) = delete;

private:
    int before_;
};

// Standard normal numbers, a function of the key: no hidden state.
at::Tensor noise(const std::vector<std::int64_t>& shape, std::uint64_t key, at::ScalarType dtype);

// Root of mean squared error over root of mean square of the reference; and the largest error over the same root. Inputs are of
// order one, so a reference below 1e-2 is what cancellation leaves (the gradient of a query that has one key) and 1e-2 takes its
// place.
struct Distance {
    double rms = 0, largest = 0;
};
Distance distance(const at::Tensor& value, const at::Tensor& reference);

// rms <= limit and largest <= 20 limit: a ratio of means alone would hide a single bad row. Reports the figures when it fails.
bool within(const at::Tensor& value, const at::Tensor& reference, double limit);

}  // namespace palimpsest::conformance
