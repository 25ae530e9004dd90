// Gated DeltaNet: the delta rule over a memory that fades. A gate per head and token clears everything at once, the delta rule
// clears one key; the decay comes before the error is read.
#include "mixers/gates.h"
#include "mixers/heads.h"

namespace palimpsest {
namespace {

struct Options {
    std::int64_t heads = 2, value_heads = 0;
    double expand_k = 0.75, expand_v = 1.5;
    std::int64_t short_conv = 4;
    bool negative_eigenvalues = false;
    bool out_gate = true;
    double decay_low = 0, decay_high = 16;
    double norm_eps = 1e-5;
};

const Schema<Options>& options_schema() {
    static const Schema<Options> schema =
        Schema<Options>()
            .reads({"model.rescale_output", "run.backend"})
            .field("heads", &Options::heads, at_least(1), "heads of queries and keys")
            .field("value_heads", &Options::value_heads, at_least(0), "heads of values, a multiple of heads; 0: as many")
            .field("expand_k", &Options::expand_k, above(0), "features of queries and keys over all heads, in model widths")
            .field("expand_v", &Options::expand_v, above(0), "features of values over all value heads, in model widths")
            .field("short_conv", &Options::short_conv, between(0, 64),
                   "taps of the convolutions (with SiLU) on q, k and v; 0: none")
            .field("negative_eigenvalues", &Options::negative_eigenvalues,
                   "write strength in (0, 2): a write may turn the old value around")
            .field("out_gate", &Options::out_gate, "multiply the normed output by silu(W x)")
            .field("decay_low", &Options::decay_low, at_least(0), "smallest initial decay rate A of a head, drawn evenly")
            .field("decay_high", &Options::decay_high, above(0), "largest initial decay rate A of a head")
            .field("norm_eps", &Options::norm_eps, above(0), "eps of the RMSNorm of every head's output");
    return schema;
}

class GatedDelta final : public Mixer {
public:
    GatedDelta(const BuildContext& context, const Options& options)
        : options_(options),
          backend_(context.backend),
          value_heads_(options.value_heads > 0 ? options.value_heads : options.heads),
          key_(head_width("mixers.gated_delta.expand_k", options.expand_k, context.width, options.heads)),
          value_(head_width("mixers.gated_delta.expand_v", options.expand_v, context.width, value_heads_)) {
        if (value_heads_ % options.heads != 0) {
            fail(ExitCode::usage, "mixers.gated_delta.value_heads: {} is no multiple of the {} heads", value_heads_, options.heads);
        }
        const nn::Scope& scope = context.scope;
        const std::int64_t width = context.width, taps = options.short_conv;
        q_ = HeadProjection(scope, "q", width, options.heads, key_, taps);
        k_ = HeadProjection(scope, "k", width, options.heads, key_, taps);
        v_ = HeadProjection(scope, "v", width, value_heads_, value_, taps);
        beta_ = nn::Linear(scope, "beta", width, value_heads_);
        rate_ = nn::Linear(scope, "rate", width, value_heads_);
        decay_ = DecayGate(scope, "mixers.gated_delta", value_heads_, 1, options.decay_low, options.decay_high);
        const OutputGate gate = options.out_gate ? OutputGate::silu : OutputGate::none;
        out_ = HeadOutput(scope, width, value_heads_, value_, {.norm_eps = options.norm_eps, .gate = gate});
    }

    at::Tensor forward(const at::Tensor& x, State* state, const StepContext&) override {
        const std::int64_t lanes = x.size(0), batch = x.size(1), length = x.size(2), groups = value_heads_ / options_.heads;
        ops::RecurrenceInput input;
        input.scale = 1 / std::sqrt(static_cast<double>(key_));
        input.q = repeat_heads(ops::l2_norm(q_(x, state)), groups);
        input.k = repeat_heads(ops::l2_norm(k_(x, state)), groups);
        at::Tensor beta = at::sigmoid(beta_(x)).view({lanes * batch, length, value_heads_, 1});
        if (options_.negative_eigenvalues) beta = 2 * beta;
        input.e = beta * input.k;
        input.u = beta * v_(x, state);
        input.log_decay = decay_(rate_(x));
        return out_(recur(input, lanes, state, backend_), x);
    }

private:
    Options options_;
    ops::Backend backend_;
    std::int64_t value_heads_, key_, value_;
    HeadProjection q_, k_, v_;
    nn::Linear beta_, rate_;
    DecayGate decay_;
    HeadOutput out_;
};

const RegisterMixer<GatedDelta, Options> registered(
    {.name = "gated_delta",
     .summary = "Gated DeltaNet; a write replaces what its key held, and a gate per head fades everything",
     .paper = "Yang et al. 2024, Gated delta networks: improving Mamba2 with the delta rule (arXiv 2412.06464)",
     .recurrence = "S~_t = alpha_t S_{t-1};  S_t = S~_t + beta_t k_t (v_t - S~_t^T k_t)^T;  o_t = S_t^T q_t / sqrt K;  "
                   "alpha_t = exp(-exp(A_log) softplus(a_t + dt_bias)), |q| = |k| = 1"},
    options_schema());

}  // namespace
}  // namespace palimpsest
