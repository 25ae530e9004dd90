// DeltaNet: the delta rule. Before a value is written, the memory's present answer to the key is taken away, so that a second write
// replaces the first. To add a mixer, copy this file: facts, options, module and registration stand here and nowhere else.
#include "mixers/heads.h"
#include "ops/layers.h"

#include <ATen/ops/elu.h>

namespace palimpsest {
namespace {

enum class Activation { silu, relu, elu1, identity };
enum class QkNorm { l2, sum, none };

struct Options {
    std::int64_t heads = 2;
    double expand_k = 1, expand_v = 1;
    std::int64_t short_conv = 4;
    Activation qk_activation = Activation::silu;
    QkNorm qk_norm = QkNorm::l2;
    bool beta = true;
    bool negative_eigenvalues = false;
    bool out_gate = false;
    double norm_eps = 1e-5;
};

const Schema<Options>& options_schema() {
    static const Schema<Options> schema =
        Schema<Options>()
            .reads({"model.rescale_output", "run.backend"})
            .field("heads", &Options::heads, at_least(1), "number of heads")
            .field("expand_k", &Options::expand_k, above(0), "features of queries and keys over all heads, in model widths")
            .field("expand_v", &Options::expand_v, above(0), "features of values over all heads, in model widths")
            .field("short_conv", &Options::short_conv, between(0, 64), "taps of the convolutions on q, k and v; 0: none")
            .choice("qk_activation", &Options::qk_activation,
                    {{"silu", Activation::silu},
                     {"relu", Activation::relu},
                     {"elu1", Activation::elu1},
                     {"identity", Activation::identity}},
                    "of queries and keys, after the convolution")
            .choice("qk_norm", &Options::qk_norm, {{"l2", QkNorm::l2}, {"sum", QkNorm::sum}, {"none", QkNorm::none}},
                    "l2 and sum keep the memory bounded; sum needs features that are never negative (relu, elu1)")
            .caution("none", "a write to a key longer than sqrt 2 makes the memory grow, without bound over many; l2 prevents it")
            .field("beta", &Options::beta, "learned strength of every write, in (0, 1); false: always 1")
            .field("negative_eigenvalues", &Options::negative_eigenvalues,
                   "strength in (0, 2): a write may turn the old value around")
            .used_when("beta", {"true"})
            .field("out_gate", &Options::out_gate, "multiply the output by silu(W x)")
            .field("norm_eps", &Options::norm_eps, above(0), "eps of the RMSNorm of every head's output");
    return schema;
}

at::Tensor activated(const at::Tensor& x, Activation activation) {
    switch (activation) {
        case Activation::silu: return at::silu(x);
        case Activation::relu: return at::relu(x);
        case Activation::elu1: return at::elu(x) + 1;
        case Activation::identity: return x;
    }
    PALIMPSEST_ASSERT(false, "activation {}", static_cast<int>(activation));
}

class Delta final : public Mixer {
public:
    Delta(const BuildContext& context, const Options& options)
        : options_(options),
          backend_(context.backend),
          key_(head_width("mixers.delta.expand_k", options.expand_k, context.width, options.heads)),
          value_(head_width("mixers.delta.expand_v", options.expand_v, context.width, options.heads)) {
        const bool positive = options.qk_activation == Activation::relu || options.qk_activation == Activation::elu1;
        if (options.qk_norm == QkNorm::sum && !positive) {
            fail(ExitCode::usage,
                 "mixers.delta.qk_norm: sum needs features that are never negative; set qk_activation to relu or elu1");
        }
        const nn::Scope& scope = context.scope;
        const std::int64_t width = context.width, heads = options.heads, taps = options.short_conv;
        q_ = HeadProjection(scope, "q", width, heads, key_, taps);
        k_ = HeadProjection(scope, "k", width, heads, key_, taps);
        v_ = HeadProjection(scope, "v", width, heads, value_, taps);
        if (options.beta) beta_ = nn::Linear(scope, "beta", width, heads);
        const OutputGate gate = options.out_gate ? OutputGate::silu : OutputGate::none;
        out_ = HeadOutput(scope, width, heads, value_, {.norm_eps = options.norm_eps, .gate = gate});
    }

    at::Tensor forward(const at::Tensor& x, State* state, const StepContext&) override {
        const std::int64_t lanes = x.size(0), batch = x.size(1), length = x.size(2), heads = options_.heads;
        ops::RecurrenceInput input;
        input.scale = 1 / std::sqrt(static_cast<double>(key_));
        input.q = normed(activated(q_(x, state, false), options_.qk_activation));
        input.k = normed(activated(k_(x, state, false), options_.qk_activation));
        input.u = v_(x, state);
        input.e = input.k;
        if (options_.beta) {
            at::Tensor beta = at::sigmoid(beta_(x)).view({lanes * batch, length, heads, 1});
            if (options_.negative_eigenvalues) beta = 2 * beta;
            input.e = beta * input.k;
            input.u = beta * input.u;
        }
        return out_(recur(input, lanes, state, backend_), x);
    }

private:
    at::Tensor normed(const at::Tensor& x) const {
        switch (options_.qk_norm) {
            case QkNorm::l2: return ops::l2_norm(x);
            case QkNorm::sum: return x / (x.sum(-1, true) + 1e-6);
            case QkNorm::none: return x;
        }
        PALIMPSEST_ASSERT(false, "norm {}", static_cast<int>(options_.qk_norm));
    }

    Options options_;
    ops::Backend backend_;
    std::int64_t key_, value_;
    HeadProjection q_, k_, v_;
    nn::Linear beta_;
    HeadOutput out_;
};

const RegisterMixer<Delta, Options> registered(
    {.name = "delta",
     .summary = "DeltaNet; a write replaces what its key held",
     .paper = "Yang et al. 2024, Parallelizing linear transformers with the delta rule over sequence length (arXiv 2406.06484)",
     .recurrence = "S_t = (I - beta_t k_t k_t^T) S_{t-1} + beta_t k_t v_t^T;  o_t = S_t^T q_t / sqrt K;  |q| = |k| = 1"},
    options_schema());

}  // namespace
}  // namespace palimpsest
