#include "nn/parameters.h"

#include "core/error.h"
#include "nn/draws.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace palimpsest::nn {
namespace {

// No memory holds more values. The limit keeps the sums over all parameters and lanes within 64 bits.
constexpr std::int64_t most_values = std::int64_t{1} << 44;

constexpr std::int64_t alignment = 64;  // in elements: a block starts on a cache line, which also suits vector loads

std::vector<double> initial_values(const ParameterInfo& info, std::uint64_t seed, double scale) {
    std::vector<double> values(static_cast<std::size_t>(info.numel));
    Draws draws(seed, Stream::init, info.name);
    const InitRule& rule = info.init;
    switch (rule.kind) {
        case InitRule::Kind::constant: std::fill(values.begin(), values.end(), rule.a); break;
        case InitRule::Kind::normal:
            for (double& v : values) v = scale * rule.a * draws.normal();
            break;
        case InitRule::Kind::uniform:
            for (double& v : values) v = scale * (rule.a + (rule.b - rule.a) * draws.uniform());
            break;
        case InitRule::Kind::spherical: {
            const std::size_t width = info.shape.empty() ? 1 : static_cast<std::size_t>(info.shape.back());
            for (std::size_t row = 0; row < values.size(); row += width) {
                double squares = 0;
                for (std::size_t i = row; i < row + width; ++i) {
                    values[i] = draws.normal();
                    squares += values[i] * values[i];
                }
                for (std::size_t i = row; i < row + width; ++i) values[i] *= scale / std::sqrt(squares);
            }
            break;
        }
        case InitRule::Kind::custom:
            for (std::size_t i = 0; i < values.size(); ++i) values[i] = rule.draw(draws.uniform(), static_cast<std::int64_t>(i));
            break;
        case InitRule::Kind::filled: rule.fill(seed, values); break;
    }
    return values;
}

}  // namespace

const at::Tensor& Parameter::operator*() const {
    PALIMPSEST_ASSERT(owner_ != nullptr, "a parameter was used that nobody declared");
    PALIMPSEST_ASSERT(owner_->lanes() > 0, "parameter {} was used before allocate()", owner_->table()[index_].name);
    return owner_->leaf(index_);
}

Parameter Parameters::declare(std::string name, std::vector<std::int64_t> shape, InitRule init, Decay decay, bool trained) {
    PALIMPSEST_ASSERT(lanes_ == 0, "parameter {} was declared after allocate()", name);
    for (const ParameterInfo& other : table_) PALIMPSEST_ASSERT(other.name != name, "parameter {} was declared twice", name);
    ParameterInfo info{std::move(name), std::move(shape), std::move(init), decay, trained, 1, 0};
    for (const std::int64_t extent : info.shape) {
        PALIMPSEST_ASSERT(extent > 0, "parameter {} has an extent of {}", info.name, extent);
        if (extent > most_values / info.numel)
            fail(ExitCode::usage, "parameter '{}' would have {} values, more than any memory holds; make the model smaller",
                 info.name, fmt::join(info.shape, " x "));
        info.numel *= extent;
    }
    table_.push_back(std::move(info));
    Parameter handle;
    handle.owner_ = this;
    handle.index_ = table_.size() - 1;
    return handle;
}

void Parameters::allocate(const std::vector<std::uint64_t>& lane_seeds, const std::vector<double>& init_scale, at::Device device,
                          at::ScalarType dtype) {
    PALIMPSEST_ASSERT(lanes_ == 0, "allocate() was called twice");
    PALIMPSEST_ASSERT(!lane_seeds.empty() && lane_seeds.size() == init_scale.size(), "{} seeds, {} scales", lane_seeds.size(),
                      init_scale.size());
    PALIMPSEST_ASSERT(dtype == at::kFloat || dtype == at::kDouble, "parameters are fp32, or fp64 in tests");
    lanes_ = static_cast<std::int64_t>(lane_seeds.size());

    std::int64_t total = 0;
    for (ParameterInfo& info : table_) {
        info.offset = total;
        total += (info.numel * lanes_ + alignment - 1) / alignment * alignment;
    }

    values_ = device.is_meta() ? at::empty({total}, at::TensorOptions().dtype(dtype).device(device))
                               : drawn(total, lane_seeds, init_scale, dtype).to(device);
    gradients_ = at::zeros({total}, values_.options());

    for (const ParameterInfo& info : table_) {
        std::vector<std::int64_t> shape{lanes_};
        shape.insert(shape.end(), info.shape.begin(), info.shape.end());
        const auto block = [&](const at::Tensor& flat) {
            return flat.narrow(0, info.offset, info.numel * lanes_).view(shape).detach();
        };
        at::Tensor leaf = block(values_);
        if (info.trained) {
            leaf.set_requires_grad(true);
            leaf.mutable_grad() = block(gradients_);  // backward adds to this gradient in place
        }
        leaves_.push_back(std::move(leaf));
    }
}

at::Tensor Parameters::drawn(std::int64_t total, const std::vector<std::uint64_t>& lane_seeds,
                             const std::vector<double>& init_scale, at::ScalarType dtype) const {
    at::Tensor host = at::zeros({total}, at::TensorOptions().dtype(dtype));
    for (const ParameterInfo& info : table_) {
        for (std::size_t lane = 0; lane < lane_seeds.size(); ++lane) {
            const std::vector<double> values = initial_values(info, lane_seeds[lane], init_scale[lane]);
            const std::int64_t start = info.offset + static_cast<std::int64_t>(lane) * info.numel;
            if (dtype == at::kFloat) {
                std::transform(values.begin(), values.end(), host.mutable_data_ptr<float>() + start,
                               [](double v) { return static_cast<float>(v); });
            } else {
                std::copy(values.begin(), values.end(), host.mutable_data_ptr<double>() + start);
            }
        }
    }
    return host;
}

std::int64_t Parameters::count() const {
    std::int64_t scalars = 0;
    for (const ParameterInfo& info : table_) scalars += info.trained ? info.numel : 0;
    return scalars;
}

std::int64_t Parameters::fixed_count() const {
    std::int64_t scalars = 0;
    for (const ParameterInfo& info : table_) scalars += info.trained ? 0 : info.numel;
    return scalars;
}

void Parameters::zero_gradients() { gradients_.zero_(); }

}  // namespace palimpsest::nn
