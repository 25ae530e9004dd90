// Kernel linear attention: the additive rule. Every value is added to the memory under the features of its key, and nothing is ever
// taken away, so a key that was written twice answers with a blend of both values.
#include "mixers/kernel.h"
#include "ops/layers.h"

#include <ATen/ops/elu.h>
#include <ATen/ops/roll.h>
#include <ATen/ops/triu_indices.h>

#include <numbers>

namespace palimpsest {
namespace {

enum class Map { elu1, relu, exp, identity, dpfp, taylor };
enum class QkNorm { none, l2 };

struct Options {
    std::int64_t heads = 2;
    double expand_k = 1, expand_v = 1;
    Map feature_map = Map::elu1;
    std::int64_t nu = 3;
    bool normalise = true;
    double eps = 1e-6;
    QkNorm qk_norm = QkNorm::none;
    std::int64_t short_conv = 4;
    bool out_norm = true;
};

const Schema<Options>& options_schema() {
    static const Schema<Options> schema =
        Schema<Options>()
            .reads({"model.rescale_output", "run.backend"})
            .field("heads", &Options::heads, at_least(1), "number of heads")
            .field("expand_k", &Options::expand_k, above(0), "features of queries and keys over all heads, in model widths")
            .field("expand_v", &Options::expand_v, above(0), "features of values over all heads, in model widths")
            .choice(
                "feature_map", &Options::feature_map,
                {{"elu1", Map::elu1},
                 {"relu", Map::relu},
                 {"exp", Map::exp},
                 {"identity", Map::identity},
                 {"dpfp", Map::dpfp},
                 {"taylor", Map::taylor}},
                "phi, per head of D features: elu(x) + 1; max(x, 0); e^x; x itself; dpfp: 2 nu D products of the parts of x above "
                "and "
                "below 0 (Schlag et al. 2021); taylor: e^(q.k/sqrt D) to second order (Based, Arora et al. 2024), 1 + D + D(D+1)/2 "
                "features, so take a small expand_k")
            .field("nu", &Options::nu, at_least(1), "how many neighbours each part is multiplied with; less than 2 D")
            .used_when("feature_map", {"dpfp"})
            .field("normalise", &Options::normalise, "divide by phi(q) . sum phi(k); needs a map that is never negative")
            .field("eps", &Options::eps, above(0), "added to that sum")
            .used_when("normalise", {"true"})
            .choice("qk_norm", &Options::qk_norm, {{"none", QkNorm::none}, {"l2", QkNorm::l2}},
                    "norm of queries and keys, before phi")
            .field("short_conv", &Options::short_conv, between(0, 64),
                   "taps of the convolutions (with SiLU) on q, k and v; 0: none")
            .field("out_norm", &Options::out_norm, "RMSNorm of every head's output");
    return schema;
}

// DPFP: r = [max(x, 0), max(-x, 0)], then r_i r_{i-j} for j = 1 .. nu. Maps [.., D] to [.., 2 nu D], never negative.
at::Tensor dpfp(const at::Tensor& x, std::int64_t nu) {
    const at::Tensor parts = at::cat({at::relu(x), at::relu(-x)}, -1);
    std::vector<at::Tensor> products;
    for (std::int64_t j = 1; j <= nu; ++j) products.push_back(parts * at::roll(parts, j, -1));
    return at::cat(products, -1);
}

// Gives phi(q) . phi(k) = 1 + s + s^2 / 2, s = q . k / sqrt D: [1, x / D^(1/4), x_i^2 / sqrt(2 D), x_i x_j / sqrt D for i < j].
at::Tensor taylor(const at::Tensor& x) {
    const std::int64_t D = x.size(-1);
    const double root = std::sqrt(static_cast<double>(D));
    const at::Tensor pairs = at::triu_indices(D, D, 0, x.options().dtype(at::kLong)), i = pairs[0], j = pairs[1];
    const at::Tensor factor = at::full(i.sizes(), 1 / root, x.options()).masked_fill_(i == j, 1 / (std::numbers::sqrt2 * root));
    const at::Tensor products = (x.unsqueeze(-1) * x.unsqueeze(-2)).flatten(-2).index_select(-1, i * D + j);
    return at::cat({at::ones_like(x.narrow(-1, 0, 1)), x / std::sqrt(root), products * factor}, -1);
}

class Linear final : public Mixer {
public:
    Linear(const BuildContext& context, const Options& options)
        : options_(options),
          backend_(context.backend),
          key_(head_width("mixers.linear.expand_k", options.expand_k, context.width, options.heads)),
          value_(head_width("mixers.linear.expand_v", options.expand_v, context.width, options.heads)) {
        if (options.normalise && options.feature_map == Map::identity) {
            fail(ExitCode::usage,
                 "mixers.linear.normalise: the sum of feature_map identity changes its sign; set normalise: false");
        }
        if (!options.normalise && options.feature_map == Map::exp) {
            fail(ExitCode::usage,
                 "mixers.linear.normalise: feature_map exp is only safe when its scale cancels; set normalise: true");
        }
        if (options.feature_map == Map::dpfp && options.nu >= 2 * key_) {
            fail(ExitCode::usage, "mixers.linear.nu: {} neighbours of {} parts (2 x {} features of a head); set at most {}",
                 options.nu, 2 * key_, key_, 2 * key_ - 1);
        }
        const std::int64_t heads = options.heads, taps = options.short_conv;
        q_ = HeadProjection(context.scope, "q", context.width, heads, key_, taps);
        k_ = HeadProjection(context.scope, "k", context.width, heads, key_, taps);
        v_ = HeadProjection(context.scope, "v", context.width, heads, value_, taps);
        out_ = HeadOutput(context.scope, context.width, heads, value_, {.norm = options.out_norm});
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
        const at::Tensor o = options_.normalise ? normalised_recur(input, x.size(0), state, backend_, options_.eps)
                                                : recur(input, x.size(0), state, backend_);
        return out_(o, x);
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
            case Map::exp: return exponential_features(input, lanes, state);
            case Map::identity: return;
            case Map::dpfp:
                input.q = dpfp(input.q, options_.nu);
                input.k = dpfp(input.k, options_.nu);
                return;
            case Map::taylor:
                input.q = taylor(input.q);
                input.k = taylor(input.k);
                input.scale = 1;  // phi holds the scale
                return;
        }
    }

    Options options_;
    ops::Backend backend_;
    std::int64_t key_, value_;
    HeadProjection q_, k_, v_;
    HeadOutput out_;
};

const RegisterMixer<Linear, Options> registered(
    {.name = "linear",
     .summary = "kernel linear attention; adds every fact, forgets and replaces none",
     .paper = "Katharopoulos et al. 2020, Transformers are RNNs (arXiv 2006.16236)",
     .recurrence = "S_t = S_{t-1} + phi(k_t) v_t^T;  z_t = z_{t-1} + phi(k_t);  o_t = S_t^T phi(q_t) / (z_t . phi(q_t) + eps)"},
    options_schema());

}  // namespace
}  // namespace palimpsest
