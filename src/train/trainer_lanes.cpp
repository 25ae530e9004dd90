// What the host does at a log point: it reads the ring of metrics, ends or warns about lanes that went non-finite, and reports.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "ops/layers.h"
#include "train/trainer_impl.h"

namespace palimpsest {

bool Trainer::Impl::all_ended() const {
    return std::all_of(states.begin(), states.end(), [](const LaneState& lane) { return lane.ended; });
}

void Trainer::Impl::warn(std::size_t lane, const std::string& message) const {
    if (lanes[lane].sink) lanes[lane].sink->warning(message);
}

void Trainer::Impl::settle() {
    const std::int64_t rows = step - window_start(), count = static_cast<std::int64_t>(lanes.size());
    if (rows == window_rows) return;
    const at::Tensor read = ring.narrow(0, 0, rows).cpu().contiguous();
    std::copy_n(read.data_ptr<float>(), read.numel(), window.begin());
    const std::int64_t first = window_rows;
    window_rows = rows;
    for (std::int64_t r = 0; r < count; ++r) {
        const auto lane = static_cast<std::size_t>(r);
        std::int64_t skipped_here = 0;
        std::string message;
        for (std::int64_t row = first; row < rows && !states[lane].ended; ++row) {
            const auto found =
                static_cast<std::int64_t>(window[static_cast<std::size_t>((row * count + r) * ring_columns) + Column::cause]);
            if (found == train::Cause::none) continue;
            const std::int64_t at_step = window_start() + row + 1;
            if (spec.train.non_finite == NonFinite::stop) {
                end_lane(lane, StopReason::non_finite, at_step, name_cause(at_step, r, found));
            } else if (++skipped_here == 1) {
                message = name_cause(at_step, r, found);
            }
        }
        if (skipped_here > 0 && spec.train.non_finite == NonFinite::warn)
            warn(lane, message + "; update skipped" +
                           (skipped_here > 1 ? fmt::format(" (and {} more up to step {})", skipped_here - 1, step) : ""));
    }
}

// "step 100, lane 0: gradient of 'layers.1.mixer.q.weight' is not finite".
std::string Trainer::Impl::name_cause(std::int64_t at_step, std::int64_t lane, std::int64_t found) {
    const std::string where = fmt::format("step {}, lane {}: ", at_step, lane);
    const auto& table = model.parameters().table();
    if (found >= train::Cause::first_gradient)
        return where + fmt::format("gradient of '{}' is not finite",
                                   table[static_cast<std::size_t>(found - train::Cause::first_gradient)].name);
    if (spec.train.non_finite != NonFinite::stop) return where + "the loss is not finite";

    // The lane still holds the parameters of that step: make the forward pass again and look where it begins.
    const at::NoGradGuard no_grad;
    for (std::size_t p = 0; p < table.size(); ++p) {
        if (!model.parameters().leaf(p).select(0, lane).isfinite().all().item<bool>())
            return where + fmt::format("the loss is not finite; parameter '{}' is not", table[p].name);
    }
    const train::Batch batch = data.batch(at_step - 1);
    const at::Tensor hidden = model.hidden(batch.tokens, nullptr, context(at_step - 1, true));
    const auto finite = [&](const at::Tensor& x) { return x.select(0, lane).isfinite().all().item<bool>(); };
    if (!finite(hidden)) return where + "the loss is not finite; the hidden states are not, all parameters are";
    if (!finite(model.logits_at(hidden, batch.positions)))
        return where + "the loss is not finite; the logits are not, the hidden states are";
    return where + "the loss is not finite; all logits are";
}

void Trainer::Impl::end_lane(std::size_t lane, StopReason reason, std::int64_t at_step, std::string message) {
    // Its last row, unless the one of this step was written with those of the other lanes.
    if (const std::int64_t rows = at_step - window_start(); reason == StopReason::non_finite || (rows < log_every && rows > 0))
        write_row(lane, rows);
    states[lane].ended = true;
    states[lane].reason = reason;
    states[lane].message = std::move(message);
    states[lane].step = at_step;
    optimizer.live().select(0, static_cast<std::int64_t>(lane)).fill_(false);
}

void Trainer::Impl::write_row(std::size_t lane, std::int64_t rows) {
    RunSink* sink = lanes[lane].sink;
    if (!sink) return;
    std::array<double, row_columns> sums{};
    std::int64_t updates = 0;
    const float* last = nullptr;
    for (std::int64_t row = 0; row < rows; ++row) {
        last = window.data() + (row * static_cast<std::int64_t>(lanes.size()) + static_cast<std::int64_t>(lane)) * ring_columns;
        if (static_cast<std::int64_t>(last[Column::cause]) != train::Cause::none) continue;
        ++updates;
        for (std::size_t column = 0; column < sums.size(); ++column) sums[column] += static_cast<double>(last[column]);
    }
    std::array<float, row_columns> out{};
    for (std::size_t column = 0; column < out.size(); ++column)
        out[column] =
            updates > 0 ? static_cast<float>(sums[column] / static_cast<double>(updates)) : std::numeric_limits<float>::quiet_NaN();
    out[Column::lr] = last[Column::lr];
    out[Column::skipped] = last[Column::skipped];
    const std::int64_t at_step = window_start() + rows;
    sink->train_row(at_step, out);

    Progress progress;
    progress.step = at_step;
    progress.steps = data.order().steps();
    progress.loss = out[Column::loss];
    progress.accuracy = out[Column::accuracy];
    progress.gradient_norm = out[Column::gradient_norm];
    progress.lr = out[Column::lr];
    const double seconds = clock.seconds() - row_seconds;
    if (step > row_step && seconds > 0) {
        progress.seconds_per_step = seconds / static_cast<double>(step - row_step);
        progress.tokens_per_second = static_cast<double>(tokens - row_tokens) / seconds;
    }
    sink->progress(progress);
}

void Trainer::Impl::write_rows() {
    for (std::size_t lane = 0; lane < lanes.size(); ++lane)
        if (!states[lane].ended) write_row(lane, step - window_start());
    row_seconds = clock.seconds();
    row_tokens = tokens;
    row_step = step;
    window_rows = 0;
}

}  // namespace palimpsest
