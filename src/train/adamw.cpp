// AdamW: a learning rate, weight decay and betas per lane, in the arithmetic of torch.optim.AdamW. Over memory it is one pass of a
// fused loop (ops/adamw.h), on the CPU as on a GPU.
#include "ops/adamw.h"

#include "core/error.h"
#include "ops/cpu/simd.h"
#include "ops/cuda/adamw.h"
#include "ops/cuda/stream.h"
#include "train/optimizer.h"

namespace palimpsest::train {
namespace {

PALIMPSEST_SIMD void update_piece(float* __restrict value, const float* __restrict gradient, float* __restrict first,
                                  float* __restrict second, std::int64_t count, const ops::AdamwCoefficients& coefficients) {
    const ops::AdamwCoefficients c = coefficients;
    for (std::int64_t i = 0; i < count; ++i) ops::adamw_element(value[i], gradient[i], first[i], second[i], c);
}

class AdamW final : public Optimizer {
public:
    explicit AdamW(const OptimizerSetup& setup)
        : Optimizer(setup), eps_(setup.options.eps), first_(state("first_moment")), second_(state("second_moment")) {
        for (const LaneValues& lane : setup.lanes) rules_.push_back({lane.lr, lane.weight_decay, lane.beta1, lane.beta2, eps_});
        if (path() == Path::tensor) {
            lr_ = column(&LaneValues::lr);
            weight_decay_ = column(&LaneValues::weight_decay);
            beta1_ = column(&LaneValues::beta1);
            beta2_ = column(&LaneValues::beta2);
        } else if (!device().is_cpu()) {
            rules_on_device_ = upload(rules_);
        }
    }

private:
    void update(double factor) override {
        if (path() == Path::tensor) update_tensors(factor);
        else if (device().is_cpu()) update_loops(factor);
        else update_on_device(factor);
    }

    void update_loops(double factor) {
        const ops::LaneRecords lanes = records();
        std::vector<ops::AdamwCoefficients> coefficients(rules_.size());
        for (std::size_t r = 0; r < rules_.size(); ++r)
            if (lanes.updated[r]) coefficients[r] = ops::adamw_coefficients(rules_[r], lanes.updates[r], lanes.clip[r], factor);
        const float* gradients = parameters().gradients().data_ptr<float>();
        float *values = parameters().values().data_ptr<float>(), *first = first_.data_ptr<float>(),
              *second = second_.data_ptr<float>();
        for_pieces([&](std::size_t p, std::int64_t lane) {
            if (!lanes.updated[lane]) return;
            const ops::Piece& piece = pieces()[p];
            const std::int64_t begin = piece.begin(lane);
            ops::AdamwCoefficients c = coefficients[static_cast<std::size_t>(lane)];
            if (!piece.decayed) c.shrink = 0;
            update_piece(values + begin, gradients + begin, first + begin, second + begin, piece.count, c);
        });
    }

    void update_on_device(double factor) {
        PALIMPSEST_ASSERT(ops::adamw_kernel != nullptr, "AdamW's kernel in a build without CUDA");
        const ops::AdamwArguments arguments{pieces_on_device(),
                                            static_cast<std::int64_t>(pieces().size()),
                                            parameters().lanes(),
                                            parameters().values().data_ptr<float>(),
                                            parameters().gradients().const_data_ptr<float>(),
                                            first_.data_ptr<float>(),
                                            second_.data_ptr<float>(),
                                            static_cast<const ops::AdamwLane*>(rules_on_device_.const_data_ptr()),
                                            records(),
                                            factor};
        if (const char* error = ops::adamw_kernel(arguments, ops::default_stream(device())))
            fail(ExitCode::run_failed, "AdamW on the GPU: {}", error);
    }

    // Coefficients per lane in double, spread over the elements as fp32.
    void update_tensors(double factor) {
        at::Tensor& values = parameters().values();
        const at::Tensor lr = lr_ * factor;
        const at::Tensor correction1 = 1 - beta1_.pow(updates()), correction2 = 1 - beta2_.pow(updates());
        const at::Tensor g = clipped_gradients();
        const at::Tensor first = first_ + (g - first_) * spread(1 - beta1_);
        const at::Tensor second = second_ * spread(beta2_) + g * g * spread(1 - beta2_);
        const at::Tensor denominator = second.sqrt() * spread(correction2.rsqrt()) + eps_;
        const at::Tensor shrunk = values - values * spread(lr * weight_decay_) * decayed();
        assign(values, shrunk - spread(lr / correction1) * (first / denominator));
        assign(first_, first);
        assign(second_, second);
    }

    double eps_;
    at::Tensor &first_, &second_;
    std::vector<ops::AdamwLane> rules_;
    at::Tensor rules_on_device_;
    at::Tensor lr_, weight_decay_, beta1_, beta2_;  // of the ATen form
};

const RegisterOptimizer<AdamW> registered({"adamw",
                                           "Adam with decoupled weight decay",
                                           "Loshchilov and Hutter, ICLR 2019 (arXiv:1711.05101)",
                                           {"first_moment", "second_moment"}});

}  // namespace
}  // namespace palimpsest::train
