#include "train/optimizer.h"

#include "config/diagnostics.h"
#include "core/error.h"
#include "ops/cpu/simd.h"
#include "ops/cuda/optimizer.h"
#include "ops/cuda/stream.h"

#include <ATen/Parallel.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

namespace palimpsest::train {
namespace {

constexpr std::int64_t cpu_piece = 8192, gpu_piece = 2048;  // elements
constexpr std::int64_t pieces_per_thread = 16;              // fewer are done before another thread is awake

struct Kind {
    OptimizerFacts facts;
    OptimizerBuilder build;
};

// Inside a function: optimizers register before main, in an order that nobody knows.
std::map<std::string, Kind, std::less<>>& registry() {
    static std::map<std::string, Kind, std::less<>> kinds;
    return kinds;
}

const Kind& kind_of(std::string_view name) {
    if (const auto found = registry().find(name); found != registry().end()) return found->second;
    const std::vector<std::string> names = optimizer_names();
    fail(ExitCode::usage, "unknown optimizer '{}'{}; known optimizers: {}", name, did_you_mean(std::string(name), names),
         fmt::join(names, ", "));
}

// Eight running sums, so that additions of one do not wait for each other; a fixed order of summation.
PALIMPSEST_SIMD double sum_of_squares(const float* x, std::int64_t count) {
    std::array<double, 8> sums{};
    std::int64_t i = 0;
    for (; i + 8 <= count; i += 8)
        for (std::int64_t j = 0; j < 8; ++j) sums[static_cast<std::size_t>(j)] += static_cast<double>(x[i + j]) * x[i + j];
    for (; i < count; ++i) sums[0] += static_cast<double>(x[i]) * x[i];
    double total = 0;
    for (double sum : sums) total += sum;
    return total;
}

}  // namespace

Optimizer::Optimizer(const OptimizerSetup& setup)
    : parameters_(setup.parameters),
      lanes_(setup.lanes),
      rules_{setup.options.clip, setup.options.non_finite == NonFinite::stop},
      decay_all_(setup.options.weight_decay_on == DecayOn::all),
      path_(setup.path) {
    const at::Tensor& values = parameters_.values();
    if (path_ == Path::automatic) path_ = device().is_cpu() || ops::judge_kernels ? Path::raw : Path::tensor;
    PALIMPSEST_ASSERT(static_cast<std::int64_t>(lanes_.size()) == parameters_.lanes(), "{} lane values, {} lanes", lanes_.size(),
                      parameters_.lanes());
    PALIMPSEST_ASSERT(values.scalar_type() == at::kFloat, "parameters are {}", at::toString(values.scalar_type()));
    PALIMPSEST_ASSERT(path_ == Path::tensor || device().is_cpu() || ops::judge_kernels, "kernels in a build without CUDA");

    const std::int64_t count = parameters_.lanes();
    const auto on_device = at::TensorOptions().device(device());
    live_ = at::ones({count}, on_device.dtype(at::kBool));
    updated_ = at::zeros({count}, on_device.dtype(at::kBool));
    for (at::Tensor* integers : {&updates_, &skipped_, &cause_}) *integers = at::zeros({count}, on_device.dtype(at::kLong));
    for (at::Tensor* reals : {&norm_, &clip_}) *reals = at::zeros({count}, on_device.dtype(at::kDouble));
    for (const std::string& name : setup.facts.states) states_.push_back({name, at::zeros_like(values.detach())});
    if (path_ == Path::raw) build_pieces();
}

at::Tensor& Optimizer::state(std::string_view name) {
    const auto found = std::find_if(states_.begin(), states_.end(), [&](const State& state) { return state.name == name; });
    PALIMPSEST_ASSERT(found != states_.end(), "no state '{}'", name);
    return found->values;
}

void Optimizer::step(const at::Tensor& loss, double factor) {
    const at::NoGradGuard no_grad;
    if (path_ == Path::tensor) judge_tensors(loss.detach());
    else if (device().is_cpu()) judge_loops(loss.detach());
    else judge_on_device(loss.detach());
    update(factor);
}

void Optimizer::build_pieces() {
    const std::int64_t longest = device().is_cpu() ? cpu_piece : gpu_piece;
    const auto& table = parameters_.table();
    for (std::size_t p = 0; p < table.size(); ++p) {
        const nn::ParameterInfo& info = table[p];
        if (!info.trained) continue;
        for (std::int64_t begin = 0; begin < info.numel; begin += longest)
            pieces_.push_back({static_cast<std::int64_t>(p), info.offset + begin, info.numel, std::min(longest, info.numel - begin),
                               nn::is_decayed(info.decay, decay_all_)});
    }
    const auto sums = static_cast<std::int64_t>(pieces_.size()) * parameters_.lanes();
    sums_ = at::empty({sums}, norm_.options());
    if (!device().is_cpu()) pieces_on_device_ = upload(pieces_);
}

at::Tensor Optimizer::upload_bytes(const void* data, std::size_t size) const {
    at::Tensor bytes = at::empty({static_cast<std::int64_t>(size)}, at::kByte);
    if (size > 0) std::memcpy(bytes.mutable_data_ptr(), data, size);
    return bytes.to(device());
}

ops::LaneRecords Optimizer::records() {
    return {live_.data_ptr<bool>(),
            updated_.data_ptr<bool>(),
            updates_.data_ptr<std::int64_t>(),
            skipped_.data_ptr<std::int64_t>(),
            cause_.data_ptr<std::int64_t>(),
            norm_.data_ptr<double>(),
            clip_.data_ptr<double>()};
}

void Optimizer::for_pieces(const std::function<void(std::size_t piece, std::int64_t lane)>& f) const {
    const auto count = static_cast<std::int64_t>(pieces_.size());
    at::parallel_for(0, count * parameters_.lanes(), pieces_per_thread, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) f(static_cast<std::size_t>(i % count), i / count);
    });
}

// Whichever thread takes a piece, the pieces are added up in their order.
void Optimizer::judge_loops(const at::Tensor& loss) {
    const float* gradients = parameters_.gradients().data_ptr<float>();
    const at::Tensor losses = loss.to(at::kDouble).contiguous();
    double* sums = sums_.data_ptr<double>();
    for_pieces([&](std::size_t p, std::int64_t lane) {
        sums[static_cast<std::size_t>(lane) * pieces_.size() + p] =
            sum_of_squares(gradients + pieces_[p].begin(lane), pieces_[p].count);
    });
    for (std::int64_t lane = 0; lane < parameters_.lanes(); ++lane) {
        double squares = 0;
        std::int64_t cause = Cause::none;
        for (const ops::Piece& piece : pieces_) {
            squares += *sums;
            if (!ops::is_finite(*sums++)) cause = Cause::first_gradient + piece.parameter;
        }
        ops::judge_lane(records(), lane, squares, cause, losses.const_data_ptr<double>()[lane], rules_);
    }
}

void Optimizer::judge_on_device(const at::Tensor& loss) {
    const at::Tensor losses = loss.to(at::kFloat).contiguous();
    const ops::JudgeArguments arguments{pieces_on_device(),
                                        static_cast<std::int64_t>(pieces_.size()),
                                        parameters_.lanes(),
                                        parameters_.gradients().const_data_ptr<float>(),
                                        losses.const_data_ptr<float>(),
                                        sums_.mutable_data_ptr<double>(),
                                        records(),
                                        rules_};
    if (const char* error = ops::judge_kernels(arguments, ops::default_stream(device())))
        fail(ExitCode::run_failed, "the gradient's norm on the GPU: {}", error);
}

void Optimizer::judge_tensors(const at::Tensor& loss) {
    const std::int64_t lanes = parameters_.lanes();
    std::vector<at::Tensor> squares;
    for (const nn::ParameterInfo& info : parameters_.table())
        squares.push_back(parameters_.gradients()
                              .narrow(0, info.offset, lanes * info.numel)
                              .view({lanes, info.numel})
                              .to(at::kDouble)
                              .square()
                              .sum(1));
    const at::Tensor by_parameter = at::stack(squares);  // [P, R]
    norm_.copy_(by_parameter.sum(0).sqrt());
    if (rules_.clip > 0) clip_.copy_((rules_.clip / (norm_ + 1e-6)).clamp_max(1));
    else clip_.fill_(1);

    const at::Tensor rank =
        at::arange(Cause::first_gradient, Cause::first_gradient + by_parameter.size(0), cause_.options()).unsqueeze(1);
    cause_.copy_((by_parameter.isfinite().logical_not() * rank).amax(0));
    cause_.masked_fill_(loss.isfinite().logical_not(), Cause::loss);
    const at::Tensor finite = cause_ == Cause::none;
    updated_.copy_(live_.logical_and(finite));
    skipped_ += live_.logical_and(finite.logical_not());
    updates_ += updated_;
    if (rules_.stop) live_.copy_(updated_);
}

at::Tensor Optimizer::column(double LaneValues::*member) const {
    at::Tensor out = at::empty({parameters_.lanes()}, at::kDouble);
    for (std::size_t r = 0; r < lanes_.size(); ++r) out.data_ptr<double>()[r] = lanes_[r].*member;
    return out.to(device());
}

void Optimizer::build_flat_indices() {
    if (lane_of_.defined()) return;
    const at::Tensor& values = parameters_.values();
    at::Tensor lane_of = at::zeros({values.numel()}, at::kLong), is_decayed = at::zeros({values.numel()}, at::kFloat);
    for (const nn::ParameterInfo& info : parameters_.table()) {
        for (std::int64_t lane = 0; lane < parameters_.lanes(); ++lane)
            lane_of.narrow(0, info.offset + lane * info.numel, info.numel).fill_(lane);
        if (info.trained && nn::is_decayed(info.decay, decay_all_))
            is_decayed.narrow(0, info.offset, parameters_.lanes() * info.numel).fill_(1);
    }
    lane_of_ = lane_of.to(device());
    decayed_ = is_decayed.to(device());
}

at::Tensor Optimizer::spread(const at::Tensor& by_lane) {
    build_flat_indices();
    return by_lane.to(at::kFloat).index_select(0, lane_of_);
}

const at::Tensor& Optimizer::decayed() {
    build_flat_indices();
    return decayed_;
}

at::Tensor Optimizer::clipped_gradients() {
    const at::Tensor& gradients = parameters_.gradients();
    return rules_.clip > 0 ? gradients * spread(clip_) : gradients;
}

void Optimizer::assign(at::Tensor& flat, const at::Tensor& of_updated_lanes) {
    build_flat_indices();
    flat.copy_(at::where(updated_.index_select(0, lane_of_), of_updated_lanes, flat));
}

std::unique_ptr<Optimizer> make_optimizer(nn::Parameters& parameters, const std::vector<LaneValues>& lanes,
                                          const TrainSpec& options, Optimizer::Path path) {
    const Kind& kind = kind_of(options.optimizer);
    return kind.build({kind.facts, parameters, lanes, options, path});
}

std::vector<std::string> optimizer_names() {
    std::vector<std::string> names;
    for (const auto& [name, kind] : registry()) names.push_back(name);
    return names;
}

const OptimizerFacts& optimizer_facts(std::string_view name) { return kind_of(name).facts; }

void register_optimizer(OptimizerFacts facts, OptimizerBuilder build) {
    std::string name = facts.name;
    PALIMPSEST_ASSERT(registry().count(name) == 0, "optimizer {} is registered twice", name);
    registry().emplace(std::move(name), Kind{std::move(facts), build});
}

}  // namespace palimpsest::train
