// Retention: linear attention whose memory fades at a fixed rate, each head at its own. Nothing decides what is kept: old facts go
// first. Queries and keys are rotated by their positions, so that a read also knows how far back it looks.
#include "mixers/heads.h"
#include "ops/layers.h"

#include <ATen/ops/exp2.h>
#include <ATen/ops/log1p.h>

namespace palimpsest {
namespace {

struct Options {
    std::int64_t heads = 2;
    double expand_k = 1, expand_v = 2;
    std::int64_t short_conv = 0;
    std::int64_t decay_exponent = 5;
    bool rotary = true;
    bool out_gate = true;
    double norm_eps = 1e-5;
};

const Schema<Options>& options_schema() {
    static const Schema<Options> schema =
        Schema<Options>()
            .reads({"model.rescale_output", "run.backend"})
            .field("heads", &Options::heads, at_least(1), "number of heads")
            .field("expand_k", &Options::expand_k, above(0), "features of queries and keys over all heads, in model widths")
            .field("expand_v", &Options::expand_v, above(0), "features of values over all heads, in model widths; the paper has 2")
            .field("short_conv", &Options::short_conv, between(0, 64),
                   "taps of the convolutions (with SiLU) on q, k and v; 0: none, as in the paper, and then a layer below must join "
                   "keys "
                   "with their values")
            .field("decay_exponent", &Options::decay_exponent, between(1, 40),
                   "head h = 0, 1, ... keeps 1 - 2^-(decay_exponent + h) of its memory a token")
            .field("rotary", &Options::rotary,
                   "rotate queries and keys by their positions, as in the paper; recall of a key is learnt sooner without")
            .field("out_gate", &Options::out_gate, "multiply the normed output by silu(W x)")
            .field("norm_eps", &Options::norm_eps, above(0), "eps of the RMSNorm of every head's output");
    return schema;
}

class RetNet final : public Mixer {
public:
    RetNet(const BuildContext& context, const Options& options)
        : options_(options),
          backend_(context.backend),
          key_(head_width("mixers.retnet.expand_k", options.expand_k, context.width, options.heads)),
          value_(head_width("mixers.retnet.expand_v", options.expand_v, context.width, options.heads)) {
        if (options.rotary && key_ % 2 != 0) {
            fail(ExitCode::usage, "mixers.retnet.rotary: needs an even head width; {} x model.width {} / {} heads is {}",
                 options.expand_k, context.width, options.heads, key_);
        }
        const nn::Scope& scope = context.scope;
        const std::int64_t width = context.width, heads = options.heads, taps = options.short_conv;
        q_ = HeadProjection(scope, "q", width, heads, key_, taps);
        k_ = HeadProjection(scope, "k", width, heads, key_, taps);
        v_ = HeadProjection(scope, "v", width, heads, value_, taps);
        const OutputGate gate = options.out_gate ? OutputGate::silu : OutputGate::none;
        out_ = HeadOutput(scope, width, heads, value_, {.norm_eps = options.norm_eps, .gate = gate});
    }

    at::Tensor forward(const at::Tensor& x, State* state, const StepContext& context) override {
        ops::RecurrenceInput input;
        input.scale = 1 / std::sqrt(static_cast<double>(key_));
        input.q = q_(x, state);
        input.k = k_(x, state);
        if (options_.rotary) {
            input.q = ops::rotary(input.q, context.position);
            input.k = ops::rotary(input.k, context.position);
        }
        input.u = v_(x, state);
        const at::Tensor head = at::arange(options_.heads, x.options().dtype(at::kDouble));
        const at::Tensor log_gamma =
            at::log1p(-at::exp2(-(head + static_cast<double>(options_.decay_exponent)))).to(x.scalar_type());
        input.log_decay = log_gamma.expand({input.q.size(0), input.q.size(1), options_.heads});
        return out_(recur(input, x.size(0), state, backend_), x);
    }

private:
    Options options_;
    ops::Backend backend_;
    std::int64_t key_, value_;
    HeadProjection q_, k_, v_;
    HeadOutput out_;
};

const RegisterMixer<RetNet, Options> registered(
    {.name = "retnet",
     .summary = "retention; adds every fact, and each head forgets at a fixed rate of its own",
     .paper = "Sun et al. 2023, Retentive network: a successor to Transformer for large language models (arXiv 2307.08621)",
     .recurrence =
         "S_t = gamma_h S_{t-1} + k_t v_t^T;  o_t = S_t^T q_t / sqrt K;  gamma_h = 1 - 2^-(decay_exponent + h); q and k rotated "
         "by their positions"},
    options_schema());

}  // namespace
}  // namespace palimpsest
