// BaseConv: a short causal convolution gated by a dense projection, the layer that recall studies put below an attention layer. It
// compares neighbouring tokens, which is all that a layer above needs to bind a value to its key.
#include "core/error.h"
#include "mixers/mixer.h"

namespace palimpsest {
namespace {

enum class Activation { none, silu };

struct Options {
    std::int64_t kernel = 3;
    Activation activation = Activation::none;
    bool bias = true;
};

const Schema<Options>& options_schema() {
    static const Schema<Options> schema =
        Schema<Options>()
            .field("kernel", &Options::kernel, between(1, 1 << 16), "taps of the convolution, the current token included")
            .choice("activation", &Options::activation, {{"none", Activation::none}, {"silu", Activation::silu}},
                    "applied to the convolution and to the projection, before their product")
            .field("bias", &Options::bias, "biases of the convolution and of the projection");
    return schema;
}

class BaseConv final : public Mixer {
public:
    BaseConv(const BuildContext& context, const Options& options)
        : activation_(options.activation),
          conv_(context.scope, "conv", context.width, options.kernel, options.bias),
          projection_(context.scope, "projection", context.width, context.width, options.bias) {}

    at::Tensor forward(const at::Tensor& x, State* state, const StepContext&) override {
        at::Tensor mixed = conv_(x, state ? &(*state)["conv"] : nullptr), gate = projection_(x);
        if (activation_ == Activation::silu) {
            mixed = at::silu(mixed);
            gate = at::silu(gate);
        }
        return mixed * gate + x;
    }

private:
    Activation activation_;
    nn::ShortConv conv_;
    nn::Linear projection_;
};

const RegisterMixer<BaseConv, Options> registered(
    {.name = "base_conv",
     .summary = "short causal convolution times a dense projection, plus the input",
     .paper = "Arora et al. 2023, Zoology: measuring and improving recall in efficient language models (arXiv 2312.04927)",
     .recurrence = "y_t = (b + sum_w kernel_w x_{t-W+1+w}) * (x_t P + c) + x_t"},
    options_schema());

}  // namespace
}  // namespace palimpsest
