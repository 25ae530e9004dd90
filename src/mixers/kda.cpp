// Kimi Delta Attention: the delta rule over a memory that fades feature by feature. It is Gated DeltaNet with a gate for every
// feature of the keys instead of one for the head; the decay comes before the error is read.
#include "mixers/gates.h"
#include "mixers/heads.h"

namespace palimpsest {
namespace {

enum class Gate { softplus, bounded };

struct Options {
    std::int64_t heads = 2, value_heads = 0;
    double expand_k = 1, expand_v = 1;
    std::int64_t short_conv = 4;
    Gate gate = Gate::softplus;
    double lower_bound = -5;
    double decay_low = 1, decay_high = 16;
    bool negative_eigenvalues = false;
    bool out_gate = true;
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
            .choice("gate", &Options::gate, {{"softplus", Gate::softplus}, {"bounded", Gate::bounded}},
                    "log decay from f = W_2 W_1 x: -A softplus(f + dt_bias), or lower_bound sigmoid(A (f + dt_bias))")
            .field("lower_bound", &Options::lower_bound, Limits{-5, 0, false, true}, "strongest log decay of a token")
            .used_when("gate", {"bounded"})
            .field("decay_low", &Options::decay_low, at_least(0),
                   "smallest initial A of a head, drawn evenly; gate: bounded starts at 1")
            .used_when("gate", {"softplus"})
            .field("decay_high", &Options::decay_high, above(0), "largest initial A of a head")
            .used_when("gate", {"softplus"})
            .field("negative_eigenvalues", &Options::negative_eigenvalues,
                   "write strength in (0, 2): a write may turn the old value around")
            .field("out_gate", &Options::out_gate,
                   "multiply the normed output by sigmoid(W_2 W_1 x + b), of the rank of a value head")
            .field("norm_eps", &Options::norm_eps, above(0), "eps of the RMSNorm of every head's output");
    return schema;
}

class Kda final : public Mixer {
public:
    Kda(const BuildContext& context, const Options& options)
        : options_(options),
          backend_(context.backend),
          value_heads_(options.value_heads > 0 ? options.value_heads : options.heads),
          key_(head_width("mixers.kda.expand_k", options.expand_k, context.width, options.heads)),
          value_(head_width("mixers.kda.expand_v", options.expand_v, context.width, value_heads_)) {
        if (value_heads_ % options.heads != 0) {
            fail(ExitCode::usage, "mixers.kda.value_heads: {} is no multiple of the {} heads", value_heads_, options.heads);
        }
        const nn::Scope& scope = context.scope;
        const std::int64_t width = context.width, taps = options.short_conv;
        q_ = HeadProjection(scope, "q", width, options.heads, key_, taps);
        k_ = HeadProjection(scope, "k", width, options.heads, key_, taps);
        v_ = HeadProjection(scope, "v", width, value_heads_, value_, taps);
        beta_ = nn::Linear(scope, "beta", width, value_heads_);
        rate_down_ = nn::Linear(scope, "rate_down", width, value_);
        rate_ = nn::Linear(scope, "rate", value_, value_heads_ * key_);
        decay_ = options.gate == Gate::bounded
                     ? DecayGate(scope, value_heads_, key_, options.lower_bound)
                     : DecayGate(scope, "mixers.kda", value_heads_, key_, options.decay_low, options.decay_high);
        const OutputGate gate = options.out_gate ? OutputGate::sigmoid : OutputGate::none;
        out_ = HeadOutput(scope, width, value_heads_, value_, {.norm_eps = options.norm_eps, .gate = gate, .gate_rank = value_});
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
        input.log_decay = decay_(rate_(rate_down_(x)));
        return out_(recur(input, lanes, state, backend_), x);
    }

private:
    Options options_;
    ops::Backend backend_;
    std::int64_t value_heads_, key_, value_;
    HeadProjection q_, k_, v_;
    nn::Linear beta_, rate_down_, rate_;
    DecayGate decay_;
    HeadOutput out_;
};

const RegisterMixer<Kda, Options> registered(
    {.name = "kda",
     .summary = "Kimi Delta Attention; a write replaces what its key held, and a gate per feature fades the rest",
     .paper = "Kimi Team 2025, Kimi Linear: an expressive, efficient attention architecture (arXiv 2510.26692)",
     .recurrence = "S~_t = Diag(alpha_t) S_{t-1};  S_t = S~_t + beta_t k_t (v_t - S~_t^T k_t)^T;  o_t = S_t^T q_t / sqrt K;  "
                   "alpha_t = exp(-exp(A_log) softplus(W_2 W_1 x_t + dt_bias)), |q| = |k| = 1"},
    options_schema());

}  // namespace
}  // namespace palimpsest
