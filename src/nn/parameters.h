// Parameters with the lane axis. Modules first declare what they need. Then one buffer is allocated, and every parameter becomes a
// contiguous [R, shape...] block of it that starts at a multiple of 64 elements. Leaves are detached views that require grad;
// backward accumulates into views of one flat gradient buffer. Optimizer, clipping and checkpoints loop over the table.
#pragma once

#include "ops/tensor.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace palimpsest::nn {

// An `InitRule` says how a lane draws its initial values. They depend on (lane seed, parameter name, element) alone, so a lane
// packed with others starts exactly where it starts alone.
struct InitRule {
    enum class Kind { constant, normal, uniform, spherical, custom, filled } kind = Kind::constant;
    double a = 0, b = 0;  // constant: a. normal: N(0, a^2). uniform: [a, b). spherical: rows of norm 1.
    // For custom: the value from a uniform number in [0, 1) and the element's index (gates: A_log, dt_bias).
    std::function<double(double uniform, std::int64_t index)> draw;
    // For filled: all values of a lane at once, where they depend on each other (orthogonal rows).
    std::function<void(std::uint64_t lane_seed, std::vector<double>& values)> fill = nullptr;

    static InitRule constant(double value) { return {Kind::constant, value, 0, {}}; }
    static InitRule normal(double std) { return {Kind::normal, std, 0, {}}; }
    static InitRule uniform(double low, double high) { return {Kind::uniform, low, high, {}}; }
    static InitRule spherical() { return {Kind::spherical, 0, 0, {}}; }
    static InitRule custom(std::function<double(double, std::int64_t)> f) { return {Kind::custom, 0, 0, std::move(f)}; }
    static InitRule filled(std::function<void(std::uint64_t, std::vector<double>&)> f) {
        return {Kind::filled, 0, 0, {}, std::move(f)};
    }
};

// `Decay` says when weight decay acts. yes: always (linear maps, convolutions, embeddings). no: only where weight_decay_on is all
// (norms, biases). never: on parameters that a pull towards 0 would not shrink but shift (the logarithm of a decay rate, the bias
// of a time step, a skip that starts at 1).
enum class Decay { yes, no, never };
inline bool is_decayed(Decay decay, bool all) { return decay == Decay::yes || (all && decay == Decay::no); }

struct ParameterInfo {
    std::string name;                 // "layers.1.mixer.q.weight"
    std::vector<std::int64_t> shape;  // without the lane axis
    InitRule init;
    Decay decay = Decay::yes;
    bool trained = true;      // false: frozen (no gradient, no update), still in checkpoints
    std::int64_t numel = 0;   // of one lane
    std::int64_t offset = 0;  // of lane 0 in the flat buffer, in elements; lane r is at offset + r * numel
};

class Parameters;

// A `Parameter` is the handle that a module keeps. After allocation it dereferences to the leaf tensor [R, shape...].
class Parameter {
public:
    Parameter() = default;
    const at::Tensor& operator*() const;
    explicit operator bool() const { return owner_ != nullptr; }

private:
    friend class Parameters;
    Parameters* owner_ = nullptr;
    std::size_t index_ = 0;
};

class Parameters {
public:
    Parameters() = default;
    Parameters(const Parameters&) = delete;  // handles point to this object
    Parameters& operator=(const Parameters&) = delete;

    // Declares a parameter. Throws Error(usage) where no memory can hold so many values.
    Parameter declare(std::string name, std::vector<std::int64_t> shape, InitRule init, Decay decay, bool trained = true);
    // Allocates and draws all parameters. init_scale [R] multiplies the random draws of its lane, but not constant, custom or
    // filled values. On the meta device parameters are shapes alone: nothing is drawn, and they take no memory.
    void allocate(const std::vector<std::uint64_t>& lane_seeds, const std::vector<double>& init_scale, at::Device device,
                  at::ScalarType dtype = at::kFloat);

    std::int64_t lanes() const { return lanes_; }
    std::int64_t count() const;        // trained scalars of one lane
    std::int64_t fixed_count() const;  // values of one lane that are drawn and never trained
    const std::vector<ParameterInfo>& table() const { return table_; }
    const at::Tensor& leaf(std::size_t index) const { return leaves_[index]; }
    // There is one copy of the values: writing through a leaf's data pointer or into values() writes the parameter.
    at::Tensor& values() { return values_; }        // flat, fp32
    at::Tensor& gradients() { return gradients_; }  // flat, same layout
    void zero_gradients();

private:
    at::Tensor drawn(std::int64_t total, const std::vector<std::uint64_t>& lane_seeds, const std::vector<double>& init_scale,
                     at::ScalarType dtype) const;

    std::vector<ParameterInfo> table_;
    std::vector<at::Tensor> leaves_;
    at::Tensor values_, gradients_;
    std::int64_t lanes_ = 0;
};

}  // namespace palimpsest::nn
