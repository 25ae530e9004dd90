// What the host does at a log point: it takes the metrics, ends or warns about lanes that went non-finite, and reports. Whatever
// happens to one lane on the way touches no other.
#include "core/error.h"
#include "ops/layers.h"
#include "train/trainer_impl.h"

#include <algorithm>

namespace palimpsest {

bool Trainer::Impl::all_ended() const {
    return std::all_of(states.begin(), states.end(), [](const LaneState& lane) { return lane.ended; });
}

bool Trainer::Impl::guarded(std::size_t lane, const std::function<void()>& action) {
    try {
        action();
        return true;
    } catch (...) {
        fail_lane(lane, std::current_exception());
        return false;
    }
}

void Trainer::Impl::tell(std::size_t lane, const std::function<void(RunSink&)>& what) {
    if (lanes[lane].sink && !states[lane].failure) guarded(lane, [&] { what(*lanes[lane].sink); });
}

void Trainer::Impl::warn(std::size_t lane, const std::string& message) {
    tell(lane, [&](RunSink& sink) { sink.warning(message); });
}

void Trainer::Impl::settle() {
    struct Skipped {
        std::int64_t steps = 0;
        std::string first;
    };
    std::vector<Skipped> skipped(lanes.size());
    window.take([&](std::int64_t at_step, std::size_t lane, std::int64_t cause) {
        if (spec.train.non_finite == NonFinite::stop) {
            end_lane(lane, StopReason::non_finite, at_step, name_cause(at_step, lane, cause));
        } else if (++skipped[lane].steps == 1) {
            skipped[lane].first = name_cause(at_step, lane, cause);
        }
    });
    if (spec.train.non_finite != NonFinite::warn) return;
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
        const auto& [steps, first] = skipped[lane];
        if (steps == 0) continue;
        warn(lane, first + "; update skipped" + (steps > 1 ? fmt::format(" (and {} more up to step {})", steps - 1, step) : ""));
    }
}

// "step 100, lane 0: gradient of 'layers.1.mixer.q.weight' is not finite".
std::string Trainer::Impl::name_cause(std::int64_t at_step, std::size_t lane, std::int64_t found) {
    const std::string where = fmt::format("step {}, lane {}: ", at_step, lane);
    const auto& table = model.parameters().table();
    if (found >= train::Cause::first_gradient)
        return where + fmt::format("gradient of '{}' is not finite",
                                   table[static_cast<std::size_t>(found - train::Cause::first_gradient)].name);
    if (spec.train.non_finite != NonFinite::stop) return where + "the loss is not finite";

    // The lane still holds the parameters of that step: make the forward pass again and look where it begins. The other lanes stay
    // at their own step, since what a mixer draws by the step (random features) is theirs to go on with.
    const at::NoGradGuard no_grad;
    const auto r = static_cast<std::int64_t>(lane);
    for (std::size_t p = 0; p < table.size(); ++p) {
        if (!model.parameters().leaf(p).select(0, r).isfinite().all().item<bool>())
            return where + fmt::format("the loss is not finite, since parameter '{}' is not", table[p].name);
    }
    const train::Batch batch = data.batch(at_step - 1);
    const StepContext again = context(step - 1, true);
    again.step.select(0, r).fill_(at_step - 1);
    const at::Tensor hidden = model.hidden(batch.tokens, nullptr, again);
    const auto finite = [&](const at::Tensor& x) { return x.select(0, r).isfinite().all().item<bool>(); };
    if (!finite(hidden))
        return where + "the loss is not finite: the parameters are, the hidden states that the layers make of them are not";
    if (!finite(model.logits_at(hidden, batch.positions)))
        return where + "the loss is not finite: the hidden states are, the logits are not";
    return where + "the loss is not finite, though all logits are";
}

void Trainer::Impl::end_lane(std::size_t lane, StopReason reason, std::int64_t at_step, std::string message) {
    // Its last row, unless the one of this step was written with those of the other lanes.
    if (window.sums(lane).to > window.sums(lane).from) write_row(lane);
    if (!states[lane].ended) freeze(lane, reason, at_step, std::move(message));
}

void Trainer::Impl::fail_lane(std::size_t lane, std::exception_ptr failure) {
    std::string message = "it is not known why";
    try {
        std::rethrow_exception(failure);
    } catch (const std::exception& error) {
        message = error.what();
    } catch (...) {
    }
    states[lane].failure = std::move(failure);
    freeze(lane, StopReason::failed, step, std::move(message));
}

void Trainer::Impl::freeze(std::size_t lane, StopReason reason, std::int64_t at_step, std::string message) {
    states[lane].ended = true;
    states[lane].reason = reason;
    states[lane].message = std::move(message);
    states[lane].step = at_step;
    states[lane].tokens_per_second = pace.tokens_per_second();
    window.freeze(lane);
    optimizer->live().select(0, static_cast<std::int64_t>(lane)).fill_(false);
    if (!lanes[lane].sink) return;
    LaneResult result;
    result.reason = reason;
    result.message = states[lane].message;
    result.failure = states[lane].failure;
    result.step = at_step;
    lanes[lane].sink->ended(result);
}

void Trainer::Impl::write_row(std::size_t lane) {
    Progress progress;
    progress.step = window.sums(lane).to;
    progress.steps = data.order().steps();
    const train::MetricWindow::Row row = window.cut_row(lane);
    progress.loss = row[train_metric("loss")];
    progress.accuracy = row[train_metric("accuracy")];
    progress.gradient_norm = row[train_metric("gradient_norm")];
    progress.lr = row[train_metric("lr")];
    progress.seconds_per_step = pace.lap_seconds_per_step();
    progress.tokens_per_second = pace.lap_tokens_per_second();
    tell(lane, [&](RunSink& sink) {
        sink.train_row(progress.step, row);
        sink.progress(progress);
    });
}

void Trainer::Impl::write_rows() {
    for (std::size_t lane = 0; lane < lanes.size(); ++lane)
        if (!states[lane].ended) write_row(lane);
    pace.lap();
}

}  // namespace palimpsest
