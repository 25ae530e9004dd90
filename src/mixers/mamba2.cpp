// Mamba-2 (state space duality): additive writes into a memory that fades. One number, the time step, sets both how strongly a
// token is written and how much is forgotten before it. The heads of a group share keys B and queries C.
#include "mixers/gates.h"
#include "mixers/heads.h"

namespace palimpsest {
namespace {

struct Options {
    std::int64_t heads = 2, groups = 1;
    double expand = 2;
    std::int64_t state = 64;
    std::int64_t short_conv = 4;
    double decay_low = 1, decay_high = 16;
    double norm_eps = 1e-5;
};

const Schema<Options>& options_schema() {
    static const Schema<Options> schema =
        Schema<Options>()
            .reads({"model.rescale_output", "run.backend"})
            .field("heads", &Options::heads, at_least(1), "number of heads; the paper has as many as make them 64 features wide")
            .field("groups", &Options::groups, at_least(1), "sets of keys B and queries C; a divisor of heads")
            .field("expand", &Options::expand, above(0), "features of values over all heads, in model widths")
            .field("state", &Options::state, at_least(1), "features of a key and of a query; the paper has 128")
            .field("short_conv", &Options::short_conv, between(0, 64),
                   "taps of the convolution (with bias and SiLU) on x, B and C; 0: none")
            .field("decay_low", &Options::decay_low, at_least(0), "smallest initial decay rate A of a head, drawn evenly")
            .field("decay_high", &Options::decay_high, above(0), "largest initial decay rate A of a head")
            .field("norm_eps", &Options::norm_eps, above(0), "eps of the RMSNorm of every group's gated output");
    return schema;
}

class Mamba2 final : public Mixer {
public:
    Mamba2(const BuildContext& context, const Options& options)
        : options_(options),
          backend_(context.backend),
          head_(head_width("mixers.mamba2.expand", options.expand, context.width, options.heads)) {
        if (options.heads % options.groups != 0) {
            fail(ExitCode::usage, "mixers.mamba2.groups: {} groups do not divide the {} heads", options.groups, options.heads);
        }
        const nn::Scope& scope = context.scope;
        const std::int64_t width = context.width, heads = options.heads, inner = heads * head_;
        const std::int64_t convolved = inner + 2 * options.groups * options.state;
        z_ = nn::Linear(scope, "z", width, inner);
        xbc_ = nn::Linear(scope, "xbc", width, convolved);
        if (options.short_conv > 0) conv_ = nn::ShortConv(scope, "conv", convolved, options.short_conv, true);
        dt_ = nn::Linear(scope, "dt", width, heads);
        gate_ = DecayGate(scope, "mixers.mamba2", heads, 1, options.decay_low, options.decay_high);
        skip_ = scope.declare("skip", {heads}, nn::InitRule::constant(1), nn::Decay::never);
        norm_ = scope.sub("out_norm").declare("weight", {inner}, nn::InitRule::constant(1), nn::Decay::no);
        out_ = nn::Linear(scope, "out", inner, width, false, nn::Role::output);
    }

    at::Tensor forward(const at::Tensor& x, State* state, const StepContext&) override {
        const std::int64_t lanes = x.size(0), batch = x.size(1), length = x.size(2), heads = options_.heads,
                           groups = options_.groups;
        at::Tensor xbc = xbc_(x);
        if (options_.short_conv > 0) xbc = at::silu(conv_(xbc, state ? &(*state)["conv"] : nullptr));
        const std::int64_t inner = heads * head_, keys = groups * options_.state;
        const auto part = [&](std::int64_t start, std::int64_t count, std::int64_t each) {  // [R * B, T, count, each]
            return xbc.narrow(-1, start, count * each).reshape({lanes * batch, length, count, each});
        };
        const at::Tensor values = part(0, heads, head_), rate = dt_(x);
        ops::RecurrenceInput input;
        input.k = repeat_heads(part(inner, groups, options_.state), heads / groups);
        input.q = repeat_heads(part(inner + keys, groups, options_.state), heads / groups);
        input.u = gate_.time_step(rate) * values;
        input.log_decay = gate_(rate);
        const at::Tensor o = recur(input, lanes, state, backend_).unflatten(0, {lanes, batch});
        const at::Tensor y = (o + (*skip_).view({lanes, 1, 1, heads, 1}) * values.unflatten(0, {lanes, batch})).flatten(3);
        return out_(normed(y * at::silu(z_(x))));
    }

private:
    // Normalises by RMSNorm over the features of a group, after the gate ("gate before norm").
    at::Tensor normed(const at::Tensor& y) const {
        const at::Tensor weight = (*norm_).view({y.size(0), 1, 1, options_.groups, -1});
        return ops::rms_norm(y.unflatten(-1, {options_.groups, -1}), weight, options_.norm_eps).flatten(3);
    }

    Options options_;
    ops::Backend backend_;
    std::int64_t head_;
    nn::Linear z_, xbc_, dt_, out_;
    nn::ShortConv conv_;
    DecayGate gate_;
    nn::Parameter skip_, norm_;
};

const RegisterMixer<Mamba2, Options> registered(
    {.name = "mamba2",
     .summary = "Mamba-2; adds every fact, and one time step a head and token says how much is written and how much fades",
     .paper = "Dao and Gu 2024, Transformers are SSMs: generalized models and efficient algorithms through structured state space "
              "duality "
              "(arXiv 2405.21060)",
     .recurrence = "S_t = exp(-A dt_t) S_{t-1} + B_t (dt_t x_t)^T;  y_t = S_t^T C_t + D x_t;  dt_t = softplus(W u_t + dt_bias)"},
    options_schema());

}  // namespace
}  // namespace palimpsest
