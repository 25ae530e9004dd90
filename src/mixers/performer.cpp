// Performer (FAVOR+): linear attention under random features whose products are, on average, the exponential kernel of softmax
// attention. The directions are orthogonal in blocks, which lowers the variance; they are drawn, not learnt.
#include "mixers/kernel.h"
#include "nn/draws.h"
#include "ops/layers.h"

namespace palimpsest {
namespace {

enum class Kernel { exp, relu };
enum class RowLength { chi, sqrt_d };
enum class QkNorm { none, l2 };

struct Options {
    std::int64_t heads = 2;
    std::int64_t features = 0;
    Kernel kernel = Kernel::exp;
    RowLength row_length = RowLength::chi;
    std::int64_t redraw_every = 0;
    double eps = 1e-30;
    QkNorm qk_norm = QkNorm::none;
    std::int64_t short_conv = 4;
    bool out_norm = true;
};

const Schema<Options>& options_schema() {
    static const Schema<Options> schema =
        Schema<Options>()
            .reads({"model.rescale_output", "run.backend"})
            .field("heads", &Options::heads, at_least(1), "number of heads, each of width D")
            .field("features", &Options::features, at_least(0), "random features m of a head; 0: D ln D, rounded down")
            .choice("kernel", &Options::kernel, {{"exp", Kernel::exp}, {"relu", Kernel::relu}},
                    "phi of a projection h = w . x / D^1/4: exp(h - |x|^2 / (2 sqrt D)), or max(h, 0) + 0.001; x is q or k")
            .choice("row_length", &Options::row_length, {{"chi", RowLength::chi}, {"sqrt_d", RowLength::sqrt_d}},
                    "length of a direction w: that of a Gaussian vector, or sqrt D, with which the kernel comes out too small")
            .field("redraw_every", &Options::redraw_every, at_least(0),
                   "training steps between draws of new directions (on the CPU); 0: one draw for ever. Evaluation keeps the last")
            .field("eps", &Options::eps, above(0),
                   "added to the normaliser; under exp the largest feature of a query, and of the keys so far, counts as 1")
            .choice("qk_norm", &Options::qk_norm, {{"none", QkNorm::none}, {"l2", QkNorm::l2}},
                    "norm of queries and keys, before phi")
            .field("short_conv", &Options::short_conv, between(0, 64),
                   "taps of the convolutions (with SiLU) on q, k and v; 0: none")
            .field("out_norm", &Options::out_norm, "RMSNorm of every head's output");
    return schema;
}

// Draws the directions w [m, D] as a function of (lane seed, layer, draw). Every block of D rows is orthogonal (Gram and Schmidt
// over Gaussian vectors, twice against rounding), and the last block may be cut. Then every row is given its length.
void draw_directions(std::uint64_t lane_seed, const std::string& name, std::int64_t draw, RowLength length, std::int64_t head,
                     std::vector<double>& values) {
    nn::Draws draws(lane_seed, Stream::features, fmt::format("{} {}", name, draw));
    const auto width = static_cast<std::size_t>(head);
    const std::size_t rows = values.size() / width;
    const auto dot = [&](const double* a, const double* b) {
        double sum = 0;
        for (std::size_t i = 0; i < width; ++i) sum += a[i] * b[i];
        return sum;
    };
    for (std::size_t row = 0; row < rows; ++row) {
        double* w = values.data() + row * width;
        for (std::size_t i = 0; i < width; ++i) w[i] = draws.normal();
        for (int pass = 0; pass < 2; ++pass) {
            for (std::size_t earlier = row - row % width; earlier < row; ++earlier) {
                const double* other = values.data() + earlier * width;
                const double along = dot(w, other);
                for (std::size_t i = 0; i < width; ++i) w[i] -= along * other[i];
            }
        }
        const double norm = std::sqrt(dot(w, w));
        for (std::size_t i = 0; i < width; ++i) w[i] /= norm;
    }
    for (std::size_t row = 0; row < rows; ++row) {
        double squares = static_cast<double>(width);
        if (length == RowLength::chi) {
            squares = 0;
            for (std::size_t i = 0; i < width; ++i) {
                const double x = draws.normal();
                squares += x * x;
            }
        }
        for (std::size_t i = 0; i < width; ++i) values[row * width + i] *= std::sqrt(squares);
    }
}

[[noreturn]] void refuse_redraw() {
    fail(ExitCode::usage, "mixers.performer.redraw_every: directions are redrawn on the CPU only; set it to 0");
}

class Performer final : public Mixer {
public:
    Performer(const BuildContext& context, const Options& options)
        : options_(options),
          backend_(context.backend),
          name_(context.scope.sub("directions").prefix),
          head_(head_width("mixers.performer.heads", 1, context.width, options.heads)),
          features_(options.features) {
        if (options.redraw_every > 0 && context.on_gpu) refuse_redraw();
        const auto width = static_cast<double>(head_);
        if (features_ == 0) features_ = std::max<std::int64_t>(1, static_cast<std::int64_t>(width * std::log(width)));
        const nn::Scope& scope = context.scope;
        q_ = HeadProjection(scope, "q", context.width, options.heads, head_, options.short_conv);
        k_ = HeadProjection(scope, "k", context.width, options.heads, head_, options.short_conv);
        v_ = HeadProjection(scope, "v", context.width, options.heads, head_, options.short_conv);
        const auto first = [name = name_, length = options.row_length, width = head_](std::uint64_t seed,
                                                                                      std::vector<double>& values) {
            draw_directions(seed, name, 0, length, width, values);
        };
        directions_ = scope.declare("directions", {features_, head_}, nn::InitRule::filled(first), nn::Decay::no, false);
        out_ = HeadOutput(scope, context.width, options.heads, head_, {.norm = options.out_norm});
    }

    at::Tensor forward(const at::Tensor& x, State* state, const StepContext& context) override {
        if (options_.redraw_every > 0 && context.training) redraw(context);
        ops::RecurrenceInput input;
        input.scale = 1 / static_cast<double>(features_);
        input.q = projected(q_(x, state), x.size(0));
        input.k = projected(k_(x, state), x.size(0));
        input.u = v_(x, state);
        if (options_.kernel == Kernel::exp) exponential_features(input, x.size(0), state);
        return out_(normalised_recur(input, x.size(0), state, backend_, options_.eps), x);
    }

private:
    // Maps x [N, T, H, D] to [N, T, H, m]: to phi, or to its exponent where the kernel is exp.
    at::Tensor projected(at::Tensor x, std::int64_t lanes) const {
        if (options_.qk_norm == QkNorm::l2) x = ops::l2_norm(x);
        x = x * std::pow(static_cast<double>(head_), -0.25);
        const at::Tensor h = nn::lane_product(x.reshape({lanes, -1, head_}), (*directions_).transpose(1, 2))
                                 .view({x.size(0), x.size(1), x.size(2), features_});
        if (options_.kernel == Kernel::relu) return at::relu(h) + 1e-3;
        return h - 0.5 * x.square().sum(-1, true);
    }

    // A lane's draw follows from its step alone, so a resumed run goes on with the same directions. Steps are read on the host,
    // which is free on the CPU and would stall a GPU.
    void redraw(const StepContext& context) {
        PALIMPSEST_ASSERT(context.step.defined() && context.lane_seeds.defined(), "redrawing needs the step and the lane seeds");
        if (!context.step.is_cpu()) refuse_redraw();
        const at::Tensor& leaf = *directions_;
        // `own` is another handle of the same memory: a write through the leaf would tell autograd that every parameter changed.
        const at::Tensor own = at::from_blob(leaf.mutable_data_ptr(), leaf.sizes(), leaf.options());
        drawn_.resize(static_cast<std::size_t>(leaf.size(0)), -1);
        std::vector<double> values(static_cast<std::size_t>(features_ * head_));
        for (std::int64_t lane = 0; lane < leaf.size(0); ++lane) {
            const std::int64_t number = context.step.const_data_ptr<std::int64_t>()[lane] / options_.redraw_every;
            std::int64_t& drawn = drawn_[static_cast<std::size_t>(lane)];
            if (number == drawn) continue;
            const auto seed = static_cast<std::uint64_t>(context.lane_seeds.const_data_ptr<std::int64_t>()[lane]);
            draw_directions(seed, name_, number, options_.row_length, head_, values);
            own[lane].copy_(at::from_blob(values.data(), {features_, head_}, at::kDouble));
            drawn = number;
        }
    }

    Options options_;
    ops::Backend backend_;
    std::string name_;
    std::int64_t head_, features_;
    HeadProjection q_, k_, v_;
    nn::Parameter directions_;
    HeadOutput out_;
    std::vector<std::int64_t> drawn_;  // for each lane the number of its present draw; -1: not known
};

const RegisterMixer<Performer, Options> registered(
    {.name = "performer",
     .summary = "Performer (FAVOR+); adds every fact under random features of the softmax kernel",
     .paper = "Choromanski et al. 2020, Rethinking attention with Performers (arXiv 2009.14794)",
     .recurrence =
         "S_t = S_{t-1} + phi(k_t) v_t^T;  z_t = z_{t-1} + phi(k_t);  o_t = S_t^T phi(q_t) / (z_t . phi(q_t) + eps);  "
         "phi(x)_i = exp(w_i . x / D^1/4 - |x|^2 / (2 sqrt D)) / sqrt m, w random; kept as S / e^M and z / e^M, M the largest "
         "exponent of a key so far"},
    options_schema());

}  // namespace
}  // namespace palimpsest
