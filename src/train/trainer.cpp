#include "train/trainer.h"

#include "core/error.h"
#include "ops/layers.h"
#include "train/trainer_impl.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <type_traits>

namespace palimpsest {
namespace {

std::vector<LaneInit> lane_inits(const std::vector<Lane>& lanes) {
    std::vector<LaneInit> out;
    for (const Lane& lane : lanes) out.push_back({lane.values.seed, lane.values.init_scale});
    return out;
}

std::vector<LaneValues> values_of(const std::vector<Lane>& lanes) {
    std::vector<LaneValues> out;
    for (const Lane& lane : lanes) out.push_back(lane.values);
    return out;
}

std::vector<std::uint64_t> seeds_of(const std::vector<Lane>& lanes) {
    std::vector<std::uint64_t> out;
    for (const Lane& lane : lanes) out.push_back(lane.values.seed);
    return out;
}

std::vector<Lane> at_least_one(std::vector<Lane> lanes) {
    PALIMPSEST_ASSERT(!lanes.empty(), "a trainer of no lanes");
    return lanes;
}

}  // namespace

Trainer::Impl::Impl(const RunSpec& run_spec, std::vector<Lane> run_lanes)
    : spec(run_spec),
      lanes(at_least_one(std::move(run_lanes))),
      runtime(train::apply_runtime(spec.run)),
      segments(train::compile_segments(spec.task)),
      model(spec, {segments.vocabulary, segments.longest}, lane_inits(lanes), runtime.device),
      optimizer(train::make_optimizer(model.parameters(), values_of(lanes), spec.train)),
      data(segments, train::BatchOrder(segments.train, spec.train, spec.data), seeds_of(lanes), runtime.device, runtime.threads),
      learning_rate(spec.train, data.order().steps(), data.order().epoch_steps()),
      evaluator(segments, spec.eval, static_cast<std::uint64_t>(spec.data.seed),
                spec.train.eval_batch > 0 ? spec.train.eval_batch : spec.train.batch, runtime.device, runtime.threads),
      window(static_cast<std::int64_t>(lanes.size()), runtime.device),
      states(lanes.size()) {
    const auto count = static_cast<std::int64_t>(lanes.size());
    at::Tensor seeds = at::empty({count}, at::kLong), rates = at::empty({count}, at::kFloat);
    for (std::int64_t r = 0; r < count; ++r) {
        const LaneValues& values = lanes[static_cast<std::size_t>(r)].values;
        seeds.data_ptr<std::int64_t>()[r] = static_cast<std::int64_t>(values.seed);
        rates.data_ptr<float>()[r] = static_cast<float>(values.lr);
    }
    lane_seeds = seeds.to(runtime.device);
    lane_lr = rates.to(runtime.device);
}

// A lane that has ended stays at its last step: what depends on the step stays with it.
StepContext Trainer::Impl::context(std::int64_t at_step, bool training) const {
    StepContext out;
    out.training = training;
    out.step = at::full({lane_seeds.size(0)}, at_step, lane_seeds.options());
    for (std::size_t lane = 0; lane < states.size(); ++lane)
        if (states[lane].ended)
            out.step.select(0, static_cast<std::int64_t>(lane)).fill_(std::max<std::int64_t>(0, states[lane].step - 1));
    out.lane_seeds = lane_seeds;
    return out;
}

// Nothing here reads a tensor back to the host.
void Trainer::Impl::train_step(std::int64_t n) {
    const auto done = [this](StepPart part) {
        if (part_done) part_done(part);
    };
    const train::Batch batch = data.batch(n);
    done(StepPart::data);
    model.parameters().zero_gradients();
    const at::Tensor logits = model.logits_at(model.hidden(batch.tokens, nullptr, context(n, true)), batch.positions);
    const at::Tensor losses = ops::cross_entropy(logits, batch.targets).mean(1);  // [R]
    done(StepPart::forward);
    losses.sum().backward();
    done(StepPart::backward);
    const double factor = learning_rate(n);
    optimizer->step(losses, factor);
    done(StepPart::update);

    const at::NoGradGuard no_grad;
    // A scored token counts as correct when its logit is strictly greater than every other: two values that a memory cannot tell
    // apart are no answer. The backward pass is done with the logits, so the target's own is struck out in place.
    const at::Tensor scores = logits.detach(), targets = batch.targets.unsqueeze(2), right = scores.gather(2, targets).squeeze(2);
    const at::Tensor correct = right > scores.scatter_(2, targets, -std::numeric_limits<double>::infinity()).amax(2);
    const at::Tensor accuracies = correct.view({correct.size(0), -1, batch.value_tokens}).all(2).to(at::kFloat).mean(1);
    window.put(train::StepOutcome{losses.detach(), accuracies, lane_lr * factor, *optimizer});
    pace.made_step(batch.tokens.size(1) * batch.tokens.size(2));
    done(StepPart::metrics);
}

bool Trainer::Impl::evaluation_due() const {
    const train::BatchOrder& order = data.order();
    if (step == order.steps()) return true;
    if (spec.train.eval_every > 0) return step % spec.train.eval_every == 0;
    return spec.data.mode == DataMode::fixed && step % order.epoch_steps() == 0;
}

void Trainer::Impl::evaluate() {
    const std::vector<EvalResult> results = evaluator.evaluate(model, step);
    const auto selected = [&](const EvalResult& result) {
        return spec.eval.select_by == SelectBy::valid ? result.valid_accuracy : result.test_accuracy;
    };
    for (std::size_t r = 0; r < lanes.size(); ++r) {
        LaneState& lane = states[r];
        if (lane.ended) continue;
        lane.last = results[r];
        if (lane.best.step == 0 || selected(lane.last) > selected(lane.best)) lane.best = lane.last;
        tell(r, [&](RunSink& sink) { sink.eval(lane.last); });
        if (!lane.ended && spec.train.early_stop > 0 && selected(lane.last) > spec.train.early_stop && step < data.order().steps())
            end_lane(r, StopReason::early_stop, step, {});
    }
}

std::vector<LaneResult> Trainer::Impl::run(const std::atomic<bool>& stop) {
    PALIMPSEST_ASSERT(!has_run, "a trainer runs once");
    has_run = true;
    const auto began = std::chrono::steady_clock::now();
    const std::int64_t steps = data.order().steps();
    bool interrupted = false;
    std::int64_t saved = step;
    pace.start();
    while (step < steps && !all_ended() && !interrupted) {
        train_step(step++);
        const bool evaluating = evaluation_due(),
                   logging = step % std::max<std::int64_t>(1, spec.run.log_every) == 0 || step == steps;
        const bool saving = spec.run.checkpoint_every > 0 && (step % spec.run.checkpoint_every == 0 || step == steps);
        interrupted = stop.load(std::memory_order_relaxed) && step < steps;
        if (!evaluating && !logging && !saving && !interrupted && !window.full()) continue;

        settle();
        data.check();
        pace.stop();
        if (logging) write_rows();
        if (evaluating && !all_ended()) evaluate();
        if (saving || interrupted) {
            write_checkpoints();
            saved = step;
        }
        pace.start();
    }
    pace.stop();
    // All lanes ended before the last step.
    if (saved != step && spec.run.checkpoint_every > 0) write_checkpoints();

    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    const std::int64_t state_bytes = model.state_bytes(segments.longest);
    std::vector<LaneResult> results;
    for (std::size_t r = 0; r < states.size(); ++r) {
        const LaneState& lane = states[r];
        LaneResult result;
        result.final_loss = window.sums(r).recent_loss();
        result.reason = lane.ended ? lane.reason : interrupted ? StopReason::interrupted : StopReason::finished;
        result.message = lane.message;
        result.failure = lane.failure;
        result.step = lane.ended ? lane.step : step;
        result.last = lane.last;
        result.best = lane.best;
        result.parameters = model.parameters().count();
        result.fixed_parameters = model.parameters().fixed_count();
        result.state_bytes = state_bytes;
        result.state_length = segments.longest;
        result.seconds = seconds;
        result.tokens_per_second = lane.ended ? lane.tokens_per_second : pace.tokens_per_second();
        results.push_back(std::move(result));
    }
    return results;
}

Trainer::Trainer(const RunSpec& spec, std::vector<Lane> lanes) : impl_(std::make_unique<Impl>(spec, std::move(lanes))) {}

Trainer::~Trainer() = default;

std::int64_t Trainer::resume() { return impl_->resume(); }

void Trainer::fail_lane(std::size_t lane, std::exception_ptr failure) { impl_->fail_lane(lane, std::move(failure)); }

std::exception_ptr Trainer::failure(std::size_t lane) const { return impl_->states.at(lane).failure; }

std::vector<LaneResult> Trainer::run(const std::atomic<bool>& stop) { return impl_->run(stop); }

StepTimes Trainer::time_steps(std::int64_t warmup, std::int64_t repeats, bool operators) {
    return impl_->time_steps(warmup, repeats, operators);
}

std::vector<Slice> Trainer::slices() const { return impl_->evaluator.slices(); }

std::vector<std::int64_t> Trainer::policy_answers() const { return impl_->evaluator.policy_answers(); }

std::int64_t Trainer::parameter_count() const { return impl_->model.parameters().count(); }

std::int64_t Trainer::fixed_parameter_count() const { return impl_->model.parameters().fixed_count(); }

std::int64_t Trainer::state_bytes() { return impl_->model.state_bytes(impl_->segments.longest); }
std::int64_t Trainer::state_length() const { return impl_->segments.longest; }

}  // namespace palimpsest
