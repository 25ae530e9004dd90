// The CPU's AdamW: one pass for the norms, one fused pass for the update.
#include "ops/cpu/simd.h"
#include "train/optimizer.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace palimpsest::train {
namespace {

constexpr std::int64_t piece_size = 8192;
constexpr std::int64_t pieces_per_thread = 16;  // fewer are done before another thread is awake

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

struct Coefficients {
    float clip, beta1_rest, beta2, beta2_rest, second_scale, eps, step_size, shrink;
};

PALIMPSEST_SIMD void update(float* __restrict value, const float* __restrict gradient, float* __restrict first,
                            float* __restrict second, std::int64_t count, const Coefficients& coefficients) {
    const Coefficients c = coefficients;
    for (std::int64_t i = 0; i < count; ++i) {
        const float g = gradient[i] * c.clip;
        const float m = first[i] + (g - first[i]) * c.beta1_rest;
        const float v = second[i] * c.beta2 + g * g * c.beta2_rest;
        first[i] = m;
        second[i] = v;
        value[i] = (value[i] - value[i] * c.shrink) - c.step_size * (m / (std::sqrt(v) * c.second_scale + c.eps));
    }
}

}  // namespace

void AdamW::build_pieces() {
    const auto& table = parameters_.table();
    for (std::size_t p = 0; p < table.size(); ++p) {
        const bool decayed = nn::is_decayed(table[p].decay, decay_all_);
        if (!table[p].trained) continue;
        for (std::int64_t lane = 0; lane < parameters_.lanes(); ++lane)
            for (std::int64_t begin = 0; begin < table[p].numel; begin += piece_size)
                pieces_.push_back({static_cast<std::int64_t>(p), lane, table[p].offset + lane * table[p].numel + begin,
                                   std::min(piece_size, table[p].numel - begin), decayed});
    }
}

void AdamW::step_raw(const at::Tensor& loss, double factor) {
    const float* gradients = parameters_.gradients().data_ptr<float>();
    float *values = parameters_.values().data_ptr<float>(), *first = first_.data_ptr<float>(), *second = second_.data_ptr<float>();
    const auto lanes = static_cast<std::size_t>(parameters_.lanes());
    bool* live = live_.data_ptr<bool>();
    std::int64_t *updates = updates_.data_ptr<std::int64_t>(), *skipped = skipped_.data_ptr<std::int64_t>();
    std::int64_t* cause = cause_.data_ptr<std::int64_t>();
    double* norm = norm_.data_ptr<double>();
    const at::Tensor losses = loss.to(at::kDouble).contiguous();

    // Whichever thread takes a piece, the pieces are added up in their order.
    const auto for_pieces = [&](const auto& f) {
        at::parallel_for(0, static_cast<std::int64_t>(pieces_.size()), pieces_per_thread,
                         [&](std::int64_t begin, std::int64_t end) {
                             for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) f(i);
                         });
    };
    std::vector<double> sums(pieces_.size());
    for_pieces([&](std::size_t i) { sums[i] = sum_of_squares(gradients + pieces_[i].begin, pieces_[i].count); });
    std::fill_n(norm, lanes, 0.0);
    std::fill_n(cause, lanes, Cause::none);
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
        const Piece& piece = pieces_[i];
        norm[piece.lane] += sums[i];
        if (!std::isfinite(sums[i])) cause[piece.lane] = Cause::first_gradient + piece.parameter;
    }

    std::vector<Coefficients> coefficients(lanes);
    std::vector<char> updated(lanes);
    for (std::size_t r = 0; r < lanes; ++r) {
        norm[r] = std::sqrt(norm[r]);
        if (!std::isfinite(losses.data_ptr<double>()[r])) cause[r] = Cause::loss;
        const bool finite = cause[r] == Cause::none;
        updated[r] = live[r] && finite;
        if (live[r] && !finite) ++skipped[r];
        if (stop_) live[r] = updated[r];
        if (!updated[r]) continue;
        const auto t = static_cast<double>(++updates[r]);
        const LaneValues& lane = lanes_[r];
        const double lr = lane.lr * factor;
        const double clip = clip_ > 0 ? std::min(1.0, clip_ / (norm[r] + 1e-6)) : 1;
        const double correction1 = 1 - std::pow(lane.beta1, t), correction2 = 1 - std::pow(lane.beta2, t);
        coefficients[r] = {static_cast<float>(clip),
                           static_cast<float>(1 - lane.beta1),
                           static_cast<float>(lane.beta2),
                           static_cast<float>(1 - lane.beta2),
                           static_cast<float>(1 / std::sqrt(correction2)),
                           static_cast<float>(eps_),
                           static_cast<float>(lr / correction1),
                           static_cast<float>(lr * lane.weight_decay)};
    }
    for_pieces([&](std::size_t i) {
        const Piece& piece = pieces_[i];
        if (!updated[static_cast<std::size_t>(piece.lane)]) return;
        Coefficients c = coefficients[static_cast<std::size_t>(piece.lane)];
        if (!piece.decayed) c.shrink = 0;
        update(values + piece.begin, gradients + piece.begin, first + piece.begin, second + piece.begin, piece.count, c);
    });
}

}  // namespace palimpsest::train
