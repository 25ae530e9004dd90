// Kernel linear attention: the additive rule. Every value is added to the memory under the features of its key; nothing is ever taken
// away, so a key that was written twice answers with a blend of both values.
#include "mixers/heads.h"
#include "ops/layers.h"

#include <ATen/ops/cummax.h>
#include <ATen/ops/elu.h>

namespace palimpsest {
namespace {

enum class Map { elu1, relu, exp, identity };
enum class QkNorm { none, l2 };

struct Options {
    std::int64_t heads = 2;
    double expand_k = 1, expand_v = 1;
    Map feature_map = Map::elu1;
    bool normalise = true;
    double eps = 1e-6;
    QkNorm qk_norm = QkNorm::none;
    std::int64_t short_conv = 4;
    bool out_norm = true;
};

const Schema<Options>& options_schema() {
    static const Schema<Options> schema =
        Schema<Options>()
            .field("heads", &Options::heads, at_least(1), "number of heads")
            .field("expand_k", &Options::expand_k, above(0), "features of queries and keys over all heads, in model widths")
            .field("expand_v", &Options::expand_v, above(0), "features of values over all heads, in model widths")
            .choice("feature_map", &Options::feature_map,
                    {{"elu1", Map::elu1}, {"relu", Map::relu}, {"exp", Map::exp}, {"identity", Map::identity}},
                    "phi, per head: elu(x) + 1, max(x, 0), e^x, or x itself")
            .field("normalise", &Options::normalise, "divide by phi(q) . sum phi(k); needs a map that is never negative")
            .field("eps", &Options::eps, above(0), "added to that sum")
            .choice("qk_norm", &Options::qk_norm, {{"none", QkNorm::none}, {"l2", QkNorm::l2}}, "norm of queries and keys, before phi")
            .field("short_conv", &Options::short_conv, between(0, 64), "taps of the convolutions (with SiLU) on q, k and v; 0: none")
            .field("out_norm", &Options::out_norm, "RMSNorm of every head's output");
    return schema;
}

class Linear final : public Mixer {
public:
    Linear(const BuildContext& context, const Options& options)
        : options_(options), backend_(context.backend), key_(head_width("mixers.linear.expand_k", options.expand_k, context.width, options.heads)),
          value_(head_width("mixers.linear.expand_v", options.expand_v, context.width, options.heads)) {
        if (options.normalise && options.feature_map == Map::identity) {
            fail(ExitCode::usage, "mixers.linear.normalise: the sum of feature_map identity changes its sign; set normalise: false");
        }
        if (!options.normalise && options.feature_map == Map::exp) {
            fail(ExitCode::usage, "mixers.linear.normalise: feature_map exp is only safe when its scale cancels; set normalise: true");
        }
        const std::int64_t heads = options.heads, taps = options.short_conv;
        q_ = HeadProjection(context.scope, "q", context.width, heads, key_, taps);
        k_ = HeadProjection(context.scope, "k", context.width, heads, key_, taps);
        v_ = HeadProjection(context.scope, "v", context.width, heads, value_, taps);
        if (options.out_norm) norm_ = nn::Norm(context.scope, "out_norm", value_, NormKind::rms, 1e-5);
        out_ = nn::Linear(context.scope, "out", heads * value_, context.width, false, nn::Role::output);
    }

    at::Tensor forward(const at::Tensor& x, State* state, const StepContext&) override {
        ops::RecurrenceInput input;
        input.scale = 1 / std::sqrt(static_cast<double>(key_));
        input.q = q_(x, state);
        input.k = k_(x, state);
        input.u = v_(x, state);
        if (options_.qk_norm == QkNorm::l2) {
            input.q = ops::l2_norm(input.q);
            input.k = ops::l2_norm(input.k);
        }
        map_features(input, x.size(0), state);
        if (options_.normalise) {  // a value that is always 1 sums up the keys: z is the last column of the memory
            input.u = at::cat({input.u, at::ones({1}, input.u.options()).expand({input.u.size(0), input.u.size(1), input.u.size(2), 1})}, -1);
        }
        at::Tensor o = recur(input, x.size(0), state, backend_);
        if (options_.normalise) o = o.narrow(-1, 0, value_) / (o.narrow(-1, value_, 1) + options_.eps);
        o = o.reshape({x.size(0), x.size(1), x.size(2), options_.heads, value_});
        if (options_.out_norm) o = norm_(o);
        return out_(o.flatten(3));
    }

private:
    void map_features(ops::RecurrenceInput& input, std::int64_t lanes, State* state) const {
        switch (options_.feature_map) {
            case Map::elu1:
                input.q = at::elu(input.q) + 1;
                input.k = at::elu(input.k) + 1;
                return;
            case Map::relu:
                input.q = at::relu(input.q);
                input.k = at::relu(input.k);
                return;
            case Map::exp: return exponential(input, lanes, state);
            case Map::identity: return;
        }
    }

    // e^x without overflow and without looking ahead. A query's own maximum cancels in the normalisation. Keys are scaled by the largest
    // entry so far, m_t; when it grows, the memory is rescaled by e^(m_{t-1} - m_t), which is a decay of the recurrence family. What is
    // normalised does not depend on m, so m takes no gradient.
    void exponential(ops::RecurrenceInput& input, std::int64_t lanes, State* state) const {
        input.q = (input.q - input.q.detach().amax(-1, true)).exp();
        at::Tensor top = input.k.detach().amax(-1);  // [N, T, H]
        const bool goes_on = state && (*state)["largest"].defined();
        if (goes_on) top = at::cat({(*state)["largest"].flatten(0, 1), top}, 1);
        at::Tensor largest = std::get<0>(at::cummax(top, 1));
        const at::Tensor before = goes_on ? largest.narrow(1, 0, largest.size(1) - 1)
                                          : at::cat({largest.narrow(1, 0, 1), largest.narrow(1, 0, largest.size(1) - 1)}, 1);
        if (goes_on) largest = largest.narrow(1, 1, largest.size(1) - 1);
        input.k = (input.k - largest.unsqueeze(-1)).exp();
        input.log_decay = before - largest;
        if (state) {  // [R, B, 1, H]
            const at::Tensor last = largest.narrow(1, largest.size(1) - 1, 1).clone(at::MemoryFormat::Contiguous);
            (*state)["largest"] = last.unflatten(0, {lanes, last.size(0) / lanes});
        }
    }

    Options options_;
    ops::Backend backend_;
    std::int64_t key_, value_;
    HeadProjection q_, k_, v_;
    nn::Norm norm_;
    nn::Linear out_;
};

const RegisterMixer<Linear, Options> registered(
    {.name = "linear",
     .summary = "kernel linear attention; adds every fact, forgets and replaces none",
     .paper = "Katharopoulos et al. 2020, Transformers are RNNs (arXiv 2006.16236)",
     .recurrence = "S_t = S_{t-1} + phi(k_t) v_t^T;  z_t = z_{t-1} + phi(k_t);  o_t = S_t^T phi(q_t) / (z_t . phi(q_t) + eps)"},
    options_schema());

}  // namespace
}  // namespace palimpsest
