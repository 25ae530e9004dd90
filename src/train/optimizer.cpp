#include "train/optimizer.h"

#include "core/error.h"

#include <algorithm>

namespace palimpsest::train {
namespace {

at::Tensor column(const std::vector<LaneValues>& lanes, double LaneValues::*member, at::Device device) {
    at::Tensor out = at::empty({static_cast<std::int64_t>(lanes.size())}, at::kDouble);
    for (std::size_t r = 0; r < lanes.size(); ++r) out.data_ptr<double>()[r] = lanes[r].*member;
    return out.to(device);
}

}  // namespace

AdamW::AdamW(nn::Parameters& parameters, const std::vector<LaneValues>& lanes, const TrainSpec& options, Path path)
    : parameters_(parameters),
      lanes_(lanes),
      eps_(options.eps),
      clip_(options.clip),
      decay_all_(options.weight_decay_on == DecayOn::all),
      stop_(options.non_finite == NonFinite::stop),
      path_(path) {
    const at::Tensor& values = parameters_.values();
    const at::Device device = values.device();
    if (path_ == Path::automatic) path_ = device.is_cpu() ? Path::raw : Path::tensor;
    PALIMPSEST_ASSERT(static_cast<std::int64_t>(lanes.size()) == parameters_.lanes(), "{} lane values, {} lanes", lanes.size(),
                      parameters_.lanes());
    PALIMPSEST_ASSERT(values.scalar_type() == at::kFloat, "parameters are {}", at::toString(values.scalar_type()));

    const std::int64_t count = parameters_.lanes();
    const auto on_device = at::TensorOptions().device(device);
    live_ = at::ones({count}, on_device.dtype(at::kBool));
    updates_ = at::zeros({count}, on_device.dtype(at::kLong));
    skipped_ = at::zeros({count}, on_device.dtype(at::kLong));
    norm_ = at::zeros({count}, on_device.dtype(at::kDouble));
    cause_ = at::zeros({count}, on_device.dtype(at::kLong));
    first_ = at::zeros_like(values.detach());
    second_ = at::zeros_like(values.detach());
    if (path_ == Path::raw) build_pieces();
    else build_flat_indices();
}

void AdamW::step(const at::Tensor& loss, double factor) {
    const at::NoGradGuard no_grad;
    if (path_ == Path::raw) step_raw(loss.detach(), factor);
    else step_tensor(loss.detach(), factor);
}

void AdamW::build_flat_indices() {
    const at::Tensor& values = parameters_.values();
    at::Tensor lane_of = at::zeros({values.numel()}, at::kLong), decayed = at::zeros({values.numel()}, at::kFloat);
    for (const nn::ParameterInfo& info : parameters_.table()) {
        for (std::int64_t lane = 0; lane < parameters_.lanes(); ++lane)
            lane_of.narrow(0, info.offset + lane * info.numel, info.numel).fill_(lane);
        if (info.trained && nn::is_decayed(info.decay, decay_all_))
            decayed.narrow(0, info.offset, parameters_.lanes() * info.numel).fill_(1);
    }
    lane_of_ = lane_of.to(values.device());
    decayed_ = decayed.to(values.device());
    lr_ = column(lanes_, &LaneValues::lr, values.device());
    weight_decay_ = column(lanes_, &LaneValues::weight_decay, values.device());
    beta1_ = column(lanes_, &LaneValues::beta1, values.device());
    beta2_ = column(lanes_, &LaneValues::beta2, values.device());
}

void AdamW::step_tensor(const at::Tensor& loss, double factor) {
    at::Tensor &values = parameters_.values(), &gradients = parameters_.gradients();
    const std::int64_t lanes = parameters_.lanes();

    std::vector<at::Tensor> squares;
    for (const nn::ParameterInfo& info : parameters_.table())
        squares.push_back(
            gradients.narrow(0, info.offset, lanes * info.numel).view({lanes, info.numel}).to(at::kDouble).square().sum(1));
    const at::Tensor by_parameter = at::stack(squares);  // [P, R]
    norm_ = by_parameter.sum(0).sqrt();

    const at::Tensor rank =
        at::arange(Cause::first_gradient, Cause::first_gradient + by_parameter.size(0), cause_.options()).unsqueeze(1);
    const at::Tensor gradient_cause = (by_parameter.isfinite().logical_not() * rank).amax(0);
    const at::Tensor loss_finite = loss.isfinite();
    cause_ = gradient_cause.masked_fill(loss_finite.logical_not(), Cause::loss);
    const at::Tensor finite = cause_ == Cause::none;
    const at::Tensor update = live_.logical_and(finite);
    skipped_ += live_.logical_and(finite.logical_not());
    updates_ += update;
    if (stop_) live_ = update;

    // Coefficients per lane in double, spread over the elements as fp32.
    const auto spread = [&](const at::Tensor& by_lane) { return by_lane.to(values.scalar_type()).index_select(0, lane_of_); };
    const at::Tensor lr = lr_ * factor;
    const at::Tensor correction1 = 1 - beta1_.pow(updates_), correction2 = 1 - beta2_.pow(updates_);
    at::Tensor g = gradients;
    if (clip_ > 0) g = g * spread((clip_ / (norm_ + 1e-6)).clamp_max(1));
    const at::Tensor first = first_ + (g - first_) * spread(1 - beta1_);
    const at::Tensor second = second_ * spread(beta2_) + g * g * spread(1 - beta2_);
    const at::Tensor denominator = second.sqrt() * spread(correction2.rsqrt()) + eps_;
    const at::Tensor decayed = values - values * spread(lr * weight_decay_) * decayed_;
    const at::Tensor updated = decayed - spread(lr / correction1) * (first / denominator);

    const at::Tensor chosen = update.index_select(0, lane_of_);
    values.copy_(at::where(chosen, updated, values));
    first_.copy_(at::where(chosen, first, first_));
    second_.copy_(at::where(chosen, second, second_));
}

}  // namespace palimpsest::train
