// Gated linear attention: the additive rule over a memory in which every feature of the keys fades at a rate of its own, chosen by
// the token. The memory forgets by time and by feature, but never a single fact.
#include "mixers/heads.h"

#include <ATen/ops/log_sigmoid.h>

namespace palimpsest {
namespace {

struct Options {
    std::int64_t heads = 2;
    double expand_k = 0.5, expand_v = 1;
    std::int64_t short_conv = 0;
    std::int64_t gate_rank = 16;
    double gate_scale = 16;
    bool out_gate = true;
    double norm_eps = 1e-5;
};

const Schema<Options>& options_schema() {
    static const Schema<Options> schema =
        Schema<Options>()
            .reads({"model.rescale_output", "run.backend"})
            .field("heads", &Options::heads, at_least(1), "number of heads")
            .field("expand_k", &Options::expand_k, above(0), "features of queries and keys over all heads, in model widths")
            .field("expand_v", &Options::expand_v, above(0), "features of values over all heads, in model widths")
            .field("short_conv", &Options::short_conv, between(0, 64),
                   "taps of the convolutions (with SiLU) on q, k and v; 0: none, as published. Recall in one layer wants 2 or "
                   "more: a key "
                   "must meet the value beside it")
            .field("gate_rank", &Options::gate_rank, at_least(1), "rank of the gate's projection")
            .field("gate_scale", &Options::gate_scale, above(0),
                   "tau: the log decay is logsigmoid(.) / tau; large remembers longer")
            .field("out_gate", &Options::out_gate, "multiply the normed output by silu(W x)")
            .field("norm_eps", &Options::norm_eps, above(0), "eps of the RMSNorm of every head's output");
    return schema;
}

class Gla final : public Mixer {
public:
    Gla(const BuildContext& context, const Options& options)
        : options_(options),
          backend_(context.backend),
          key_(head_width("mixers.gla.expand_k", options.expand_k, context.width, options.heads)),
          value_(head_width("mixers.gla.expand_v", options.expand_v, context.width, options.heads)) {
        const nn::Scope& scope = context.scope;
        const std::int64_t width = context.width, heads = options.heads, taps = options.short_conv;
        q_ = HeadProjection(scope, "q", width, heads, key_, taps);
        k_ = HeadProjection(scope, "k", width, heads, key_, taps);
        v_ = HeadProjection(scope, "v", width, heads, value_, taps);
        decay_down_ = nn::Linear(scope, "decay_down", width, options.gate_rank);
        decay_ = nn::Linear(scope, "decay", options.gate_rank, heads * key_, true);
        const OutputGate gate = options.out_gate ? OutputGate::silu : OutputGate::none;
        out_ = HeadOutput(scope, width, heads, value_, {.norm_eps = options.norm_eps, .gate = gate});
    }

    at::Tensor forward(const at::Tensor& x, State* state, const StepContext&) override {
        const std::int64_t lanes = x.size(0), batch = x.size(1), length = x.size(2);
        ops::RecurrenceInput input;
        input.scale = 1 / std::sqrt(static_cast<double>(key_));
        input.q = q_(x, state);
        input.k = k_(x, state);
        input.u = v_(x, state);
        const at::Tensor logits = decay_(decay_down_(x)).view({lanes * batch, length, options_.heads, key_});
        input.log_decay = at::log_sigmoid(logits) / options_.gate_scale;
        return out_(recur(input, lanes, state, backend_), x);
    }

private:
    Options options_;
    ops::Backend backend_;
    std::int64_t key_, value_;
    HeadProjection q_, k_, v_;
    nn::Linear decay_down_, decay_;
    HeadOutput out_;
};

const RegisterMixer<Gla, Options> registered(
    {.name = "gla",
     .summary = "gated linear attention; adds every fact, and a gate per feature fades what the keys wrote there",
     .paper = "Yang et al. 2023, Gated linear attention transformers with hardware-efficient training (arXiv 2312.06635)",
     .recurrence =
         "S_t = Diag(alpha_t) S_{t-1} + k_t v_t^T;  o_t = S_t^T q_t / sqrt K;  alpha_t = sigmoid(W_2 W_1 x_t + b)^(1/16)"},
    options_schema());

}  // namespace
}  // namespace palimpsest
