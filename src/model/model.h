// The model: embedding, pre-norm blocks, final norm, and a head at scored positions only (logits elsewhere are never formed).
#pragma once

#include "config/spec.h"
#include "mixers/mixer.h"
#include "nn/parameters.h"

#include <memory>
#include <vector>

namespace palimpsest {

struct ModelShape {
    std::int64_t vocabulary = 0;
    std::int64_t longest = 0;  // longest segment; learned positions reach so far
};

struct LaneInit {
    std::uint64_t seed = 1;
    double scale = 1;
};

class Model {
public:
    // Throws Error(usage) where the model's options do not fit together. `dtype` is fp32; tests ask for fp64.
    Model(const RunSpec& spec, const ModelShape& shape, const std::vector<LaneInit>& lanes, at::Device device,
          at::ScalarType dtype = at::kFloat);
    ~Model();
    Model(const Model&) = delete;
    Model& operator=(const Model&) = delete;

    // Maps tokens [R, B, T] int64 to the hidden states after the final norm, [R, B, T, d]. `states` has one entry a layer (an empty
    // list is filled so); nullptr starts a sequence and keeps nothing.
    at::Tensor hidden(const at::Tensor& tokens, std::vector<State>* states, const StepContext& context);
    // Maps hidden [R, B, T, d] and positions [R, B, P] int64 to logits [R, B * P, vocabulary] in the parameters' type.
    at::Tensor logits_at(const at::Tensor& hidden, const at::Tensor& positions);

    nn::Parameters& parameters();
    std::int64_t layers() const;  // number of blocks
    // Returns the bytes of all layers' states for one sequence of one lane after `length` tokens, measured by running one sequence.
    std::int64_t state_bytes(std::int64_t length);

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

// A `ParameterCount` counts the parameters of one lane: those that are trained, and those that are drawn and stay.
struct ParameterCount {
    std::int64_t trained = 0, fixed = 0;
};
// Counts without the memory and time of building. Throws Error(usage) where the model's options do not fit together.
ParameterCount count_parameters(const RunSpec& spec, const ModelShape& shape);
// Returns what Model::state_bytes measures after the longest sequence, from a model that is built on the CPU and runs two tokens.
std::int64_t measure_state(const RunSpec& spec, const ModelShape& shape);

}  // namespace palimpsest
