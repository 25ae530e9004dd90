// A sequence mixer is a small contract. Its file (mixers/NAME.cpp) gives facts, options, the module and its registration; laws,
// docs, validation, sweeps and plots come from the registry. To add a mixer, copy delta.cpp.
#pragma once

#include "config/schema.h"
#include "nn/modules.h"
#include "ops/recurrence.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace palimpsest {

// A `State` is what a layer carries from one call to the next: named tensors with leading axes [R, B, ...], so that states can be
// measured in bytes, saved and sliced. A missing or undefined tensor means the start of a sequence.
class State {
public:
    at::Tensor& operator[](const std::string& name) { return tensors_[name]; }
    bool has(const std::string& name) const { return tensors_.count(name) != 0; }
    const std::map<std::string, at::Tensor>& tensors() const { return tensors_; }
    std::map<std::string, at::Tensor>& tensors() { return tensors_; }
    std::int64_t bytes() const;  // of one lane and one sequence of the batch

private:
    std::map<std::string, at::Tensor> tensors_;
};

// A `StepContext` is what a call knows besides x. No member may be read back to the host.
struct StepContext {
    bool training = false;
    std::int64_t position = 0;  // of x's first token in its sequence
    at::Tensor step;            // [R] int64, optimiser step of each lane (dropout, redrawn features); may be undefined
    at::Tensor lane_seeds;      // [R] int64; may be undefined when not training
    std::map<std::string, at::Tensor>* shared = nullptr;  // tensors shared between the layers of one pass
};

struct BuildContext {
    nn::Scope scope;
    const void* options = nullptr;  // the mixer's own options struct
    std::int64_t width = 0;         // d
    std::int64_t layer = 0, layers = 0;
    std::int64_t longest = 0;  // longest sequence of any segment
    // The mixer's schema names with `reads` which of these keys it looks at.
    bool rotary = false;                             // model.positions is rotary
    bool on_gpu = false;                             // the run computes on a GPU, wherever the model is built
    ops::Backend backend = ops::Backend::automatic;  // run.backend
};

class Mixer {
public:
    virtual ~Mixer() = default;
    // The parallel form maps x [R, B, T, d] to [R, B, T, d]. With a state it continues from that state and leaves the one after the
    // last token; without a state it starts a sequence and keeps nothing.
    virtual at::Tensor forward(const at::Tensor& x, State* state, const StepContext& context) = 0;
    // The step takes one token, x [R, B, 1, d].
    virtual at::Tensor step(const at::Tensor& x, State& state, const StepContext& context) { return forward(x, &state, context); }
};

struct MixerFacts {
    std::string name;     // as in YAML
    std::string summary;  // one line
    std::string paper;
    std::string recurrence;        // exact, as text
    bool needs_positions = false;  // the mixer cannot tell order by itself (softmax)
    bool growing_state = false;    // the state grows with the sequence; else its bytes are constant (tested)
};

class MixerKind {
public:
    virtual ~MixerKind() = default;
    virtual const MixerFacts& facts() const = 0;
    virtual const AnySchema& schema() const = 0;
    // Throws Error(usage) where the options do not fit the width.
    virtual std::unique_ptr<Mixer> build(const BuildContext& context) const = 0;
};

// The registry has sorted names. `find` returns nullptr for an unknown name, `get` throws Error(usage) listing the known ones.
std::vector<std::string> mixer_names();
const MixerKind* find_mixer(std::string_view name);
const MixerKind& get_mixer(std::string_view name);
void register_mixer(std::unique_ptr<MixerKind> kind);

// Registers a mixer class M(const BuildContext&, const O&) with its options struct O:
//     static const RegisterMixer<Delta, Options> registered(facts, options_schema());
template <class M, class O>
class RegisterMixer {
public:
    RegisterMixer(MixerFacts facts, const Schema<O>& schema) { register_mixer(std::make_unique<Kind>(std::move(facts), schema)); }

private:
    struct Kind final : MixerKind {
        Kind(MixerFacts f, const Schema<O>& s) : facts_(std::move(f)), schema_(s) {}
        const MixerFacts& facts() const override { return facts_; }
        const AnySchema& schema() const override { return schema_; }
        std::unique_ptr<Mixer> build(const BuildContext& c) const override {
            return std::make_unique<M>(c, *static_cast<const O*>(c.options));
        }
        MixerFacts facts_;
        const Schema<O>& schema_;
    };
};

}  // namespace palimpsest
