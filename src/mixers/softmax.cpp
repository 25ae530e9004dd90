// Causal softmax attention: the exact memory that the recurrent mixers are measured against. Its state grows with the sequence.
#include "core/error.h"
#include "mixers/mixer.h"
#include "ops/layers.h"

#include <ATen/ops/scaled_dot_product_attention.h>

#include <cmath>

namespace palimpsest {
namespace {

enum class QkNorm { none, l2, rms };

struct Options {
    std::int64_t heads = 1;
    QkNorm qk_norm = QkNorm::none;
    bool bias = false;
};

const Schema<Options>& options_schema() {
    static const Schema<Options> schema =
        Schema<Options>()
            .reads({"model.positions", "model.rescale_output"})
            .field("heads", &Options::heads, at_least(1), "number of heads; divides the width")
            .choice("qk_norm", &Options::qk_norm, {{"none", QkNorm::none}, {"l2", QkNorm::l2}, {"rms", QkNorm::rms}},
                    "norm of queries and keys per head, before the rotation: l2 makes the logits sqrt(D) cos(q, k); rms is that "
                    "with learned weights")
            .field("bias", &Options::bias, "biases of the projections");
    return schema;
}

class Softmax final : public Mixer {
public:
    Softmax(const BuildContext& context, const Options& options)
        : heads_(options.heads), head_width_(context.width / options.heads), norm_(options.qk_norm), rotary_(context.rotary) {
        if (context.width % heads_ != 0) {
            fail(ExitCode::usage, "mixers.softmax.heads: {} heads do not divide model.width {}", heads_, context.width);
        }
        if (rotary_ && head_width_ % 2 != 0) {
            fail(ExitCode::usage, "mixers.softmax.heads: rotary positions need an even head width; {} / {} heads is {}",
                 context.width, heads_, head_width_);
        }
        qkv_ = nn::Linear(context.scope, "qkv", context.width, 3 * context.width, options.bias);
        if (norm_ == QkNorm::rms) {
            q_norm_ = nn::Norm(context.scope, "q_norm", head_width_, NormKind::rms, 1e-6);
            k_norm_ = nn::Norm(context.scope, "k_norm", head_width_, NormKind::rms, 1e-6);
        }
        out_ = nn::Linear(context.scope, "out", context.width, context.width, options.bias, nn::Role::output);
    }

    at::Tensor forward(const at::Tensor& x, State* state, const StepContext& context) override {
        const std::int64_t lanes = x.size(0), batch = x.size(1), length = x.size(2), width = x.size(3);
        // q, k and v are [R, B, T, H, D]. unbind has one gradient, a stack, where three slices would add three padded ones.
        const std::vector<at::Tensor> qkv = qkv_(x).view({lanes, batch, length, 3, heads_, head_width_}).unbind(3);
        at::Tensor q = oriented(qkv[0], q_norm_, context.position).transpose(2, 3);
        at::Tensor k = oriented(qkv[1], k_norm_, context.position).transpose(2, 3);
        at::Tensor v = qkv[2].transpose(2, 3);
        if (state) {
            k = appended((*state)["k"], k);
            v = appended((*state)["v"], v);
        }
        const double root = std::sqrt(static_cast<double>(head_width_)), scale = norm_ == QkNorm::l2 ? root : 1 / root;
        return out_(attend(q, k, v, scale).transpose(2, 3).reshape({lanes, batch, length, width}));
    }

private:
    at::Tensor oriented(at::Tensor x, const nn::Norm& norm, std::int64_t position) const {
        if (norm_ == QkNorm::l2) x = ops::l2_norm(x);
        if (norm_ == QkNorm::rms) x = norm(x);
        return rotary_ ? ops::rotary(x, position) : x;
    }

    static at::Tensor appended(at::Tensor& cache, const at::Tensor& fresh) {
        cache = cache.defined() ? at::cat({cache, fresh}, 3) : fresh.clone(at::MemoryFormat::Contiguous);
        return cache;
    }

    // Attends with q [R, B, H, T, D] to k and v [R, B, H, S, D], whose last T are q's own tokens: query i sees keys 0 .. S - T + i.
    static at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale) {
        const auto sequences = [](const at::Tensor& t) { return t.flatten(0, 1); };
        const std::int64_t fresh = q.size(3), seen = k.size(3);
        std::optional<at::Tensor> mask;
        if (fresh != seen) mask = at::ones({fresh, seen}, q.options().dtype(at::kBool)).tril(seen - fresh);
        return at::scaled_dot_product_attention(sequences(q), sequences(k), sequences(v), mask, 0, !mask, scale).view(q.sizes());
    }

    std::int64_t heads_, head_width_;
    QkNorm norm_;
    bool rotary_;
    nn::Linear qkv_, out_;
    nn::Norm q_norm_, k_norm_;
};

const RegisterMixer<Softmax, Options> registered(
    {.name = "softmax",
     .summary = "causal softmax attention; remembers everything, its state grows with the sequence",
     .paper = "Vaswani et al. 2017, Attention is all you need (arXiv 1706.03762)",
     .recurrence = "o_t = sum_{j <= t} softmax_j(q_t . k_j / sqrt D) v_j, per head",
     .needs_positions = true,
     .growing_state = true},
    options_schema());

}  // namespace
}  // namespace palimpsest
