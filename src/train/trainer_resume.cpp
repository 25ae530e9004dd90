// Checkpoints of a pack: one file a lane, all at one step, each complete in itself, so that a lane can go on in another pack.
#include "core/error.h"
#include "core/file.h"
#include "train/trainer_impl.h"

#include <algorithm>
#include <array>

namespace palimpsest {
namespace {

using Arrays = std::vector<std::pair<std::string, at::Tensor>>;

constexpr std::size_t kept_checkpoints = 2;  // a damaged newest one falls back to the one before

template <class T>
at::Tensor array_of(const T* data, std::vector<std::int64_t> shape, at::ScalarType type) {
    at::Tensor out = at::empty(shape, type);
    if (out.numel() > 0) std::copy_n(data, out.numel(), out.data_ptr<T>());
    return out;
}

at::Tensor number(std::int64_t value) { return at::full({1}, value, at::kLong); }

void add_evaluation(Arrays& arrays, const std::string& name, const EvalResult& result) {
    if (result.step == 0) return;
    const std::array<double, 2> accuracy{result.valid_accuracy, result.test_accuracy};
    const auto slices = static_cast<std::int64_t>(result.loss_sum.size());
    arrays.emplace_back(name + "/step", number(result.step));
    arrays.emplace_back(name + "/answers", array_of(result.answers.data(), {slices, answer_classes}, at::kLong));
    arrays.emplace_back(name + "/loss_sum", array_of(result.loss_sum.data(), {slices}, at::kDouble));
    arrays.emplace_back(name + "/accuracy", array_of(accuracy.data(), {2}, at::kDouble));
}

EvalResult evaluation(const train::Checkpoint& checkpoint, const std::string& name) {
    EvalResult out;
    const at::Tensor *step = checkpoint.find(name + "/step"), *answers = checkpoint.find(name + "/answers"),
                     *loss_sum = checkpoint.find(name + "/loss_sum"), *accuracy = checkpoint.find(name + "/accuracy");
    if (!step || !answers || !loss_sum || !accuracy) return out;
    out.step = *step->data_ptr<std::int64_t>();
    out.answers.assign(answers->data_ptr<std::int64_t>(), answers->data_ptr<std::int64_t>() + answers->numel());
    out.loss_sum.assign(loss_sum->data_ptr<double>(), loss_sum->data_ptr<double>() + loss_sum->numel());
    out.valid_accuracy = accuracy->data_ptr<double>()[0];
    out.test_accuracy = accuracy->data_ptr<double>()[1];
    return out;
}

// The steps of a lane since its last row, up to `to`.
train::MetricWindow::Sums window_sums(const train::Checkpoint& checkpoint, std::int64_t to) {
    using Window = train::MetricWindow;
    Window::Sums out;
    if (checkpoint.format == 1) {
        const at::Tensor* steps = checkpoint.find("log/window");
        const bool good = steps && steps->dim() == 2 && steps->size(1) == static_cast<std::int64_t>(Window::columns());
        out.from = out.to = to - (good ? steps->size(0) : 0);
        while (out.to < to) out.add(steps->const_data_ptr<float>() + (out.to - out.from) * steps->size(1));
        return out;
    }
    const std::int64_t* steps = checkpoint.find("log/steps")->const_data_ptr<std::int64_t>();
    out.from = steps[0];
    out.to = to;
    out.updates = steps[1];
    std::copy_n(checkpoint.find("log/totals")->const_data_ptr<double>(), out.totals.size(), out.totals.begin());
    if (const at::Tensor* recent = checkpoint.find("recent/loss"))
        out.recent.assign(recent->const_data_ptr<float>(), recent->const_data_ptr<float>() + recent->numel());
    return out;
}

}  // namespace

Trainer::Impl::Buffers Trainer::Impl::buffers() {
    Buffers flat = {{"parameter", model.parameters().values().detach()}};
    for (const train::Optimizer::State& state : optimizer->states()) flat.emplace_back(state.name, state.values);
    return flat;
}

// Everything of a lane that has a fixed shape, as views into the flat buffers. A parameter that is not trained has no states.
std::vector<std::pair<std::string, at::Tensor>> Trainer::Impl::lane_arrays(std::size_t lane, const Buffers& flat) {
    Arrays out;
    for (const nn::ParameterInfo& info : model.parameters().table())
        for (const auto& [name, buffer] : flat)
            if (info.trained || name == "parameter")
                out.emplace_back(
                    name + "/" + info.name,
                    buffer.narrow(0, info.offset + static_cast<std::int64_t>(lane) * info.numel, info.numel).view(info.shape));
    return out;
}

train::Checkpoint Trainer::Impl::pack(std::size_t lane, const Buffers& on_cpu) {
    const auto r = static_cast<std::int64_t>(lane);
    const LaneState& state = states[lane];
    train::Checkpoint out;
    out.step = step;
    out.facts = identity(lane);
    out.facts.insert(
        out.facts.end(),
        {{"lanes", std::to_string(lanes.size())}, {"threads", std::to_string(runtime.threads)}, {"device", runtime.device.str()}});
    if (state.ended) out.facts.emplace_back("ended", "early_stop");
    out.arrays = lane_arrays(lane, on_cpu);
    const auto counter = [&](const at::Tensor& by_lane) { return by_lane.select(0, r).to(at::kLong).cpu().view({1}); };
    out.arrays.emplace_back("counter/updates", counter(optimizer->updates()));
    out.arrays.emplace_back("counter/skipped", counter(optimizer->skipped()));
    out.arrays.emplace_back("counter/live", counter(optimizer->live()));
    out.arrays.emplace_back("counter/ended_step", number(state.step));
    const train::MetricWindow::Sums& sums = window.sums(lane);
    const std::array<std::int64_t, 2> steps{sums.from, sums.updates};
    out.arrays.emplace_back("log/steps", array_of(steps.data(), {2}, at::kLong));
    out.arrays.emplace_back("log/totals",
                            array_of(sums.totals.data(), {static_cast<std::int64_t>(sums.totals.size())}, at::kDouble));
    out.arrays.emplace_back("recent/loss",
                            array_of(sums.recent.data(), {static_cast<std::int64_t>(sums.recent.size())}, at::kFloat));
    add_evaluation(out.arrays, "last", state.last);
    add_evaluation(out.arrays, "best", state.best);
    return out;
}

// What makes the lane this run and no other.
std::vector<std::pair<std::string, std::string>> Trainer::Impl::identity(std::size_t lane) const {
    std::vector<std::pair<std::string, std::string>> facts = {{"run_id", lanes[lane].run_id}};
    for (const LaneField& field : lane_fields) facts.emplace_back(field.name(), field.text(lanes[lane].values));
    return facts;
}

void Trainer::Impl::write_checkpoints() {
    Buffers on_cpu = buffers();
    for (auto& [name, buffer] : on_cpu) buffer = buffer.cpu();
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
        // What has failed is resumed from before its failure.
        const LaneState& state = states[lane];
        if (lanes[lane].checkpoint_folder.empty() || (state.ended && state.reason != StopReason::early_stop)) continue;
        guarded(lane, [&] { write_checkpoint(lane, pack(lane, on_cpu)); });
    }
}

void Trainer::Impl::write_checkpoint(std::size_t lane, const train::Checkpoint& checkpoint) {
    const auto broken = std::find_if(checkpoint.arrays.begin(), checkpoint.arrays.end(), [](const auto& array) {
        return array.first.starts_with("parameter/") && !array.second.isfinite().all().template item<bool>();
    });
    // A checkpoint that is not finite would push a good one out.
    if (broken != checkpoint.arrays.end()) {
        warn(lane, fmt::format("step {}, lane {}: '{}' is not finite; no checkpoint is written, the last finite one stays", step,
                               lane, broken->first));
        return;
    }
    const std::string &folder = lanes[lane].checkpoint_folder, path = train::checkpoint_path(folder, step);
    RunSink* sink = lanes[lane].sink;
    if (sink) sink->checkpoint_begins(step);
    make_folders(folder);
    train::write_checkpoint(path, checkpoint);
    train::rotate_checkpoints(folder, step, kept_checkpoints);
    if (sink) sink->checkpoint_written(path, step);
}

void Trainer::Impl::check_identity(std::size_t lane, const train::Checkpoint& checkpoint, const std::string& path) {
    for (const auto& [key, here] : identity(lane)) {
        const std::string& there = checkpoint.fact(key);
        if (there == here || (key == "run_id" && (there.empty() || here.empty()))) continue;
        fail(ExitCode::usage, "checkpoint {} belongs to another run: {} is {} there and {} here", path, key, there, here);
    }
    Arrays expected = lane_arrays(lane, buffers());
    for (const char* name : {"updates", "skipped", "live", "ended_step"})
        expected.emplace_back(std::string("counter/") + name, number(0));
    if (checkpoint.format > 1) {
        expected.emplace_back("log/steps", at::empty({2}, at::kLong));
        expected.emplace_back("log/totals", at::empty({static_cast<std::int64_t>(train_metrics.size())}, at::kDouble));
    }
    std::vector<std::string> lines = train::differences(checkpoint, expected);
    const auto slices = static_cast<std::int64_t>(evaluator.slices().size());
    for (const char* name : {"last/answers", "best/answers"}) {
        if (const at::Tensor* stored = checkpoint.find(name); stored && stored->numel() != slices * answer_classes)
            lines.push_back(
                fmt::format("'{}' has {} slices in the checkpoint; expected {}", name, stored->numel() / answer_classes, slices));
    }
    if (!lines.empty()) fail(ExitCode::usage, "checkpoint {} does not fit this model:\n  {}", path, fmt::join(lines, "\n  "));
}

void Trainer::Impl::unpack(std::size_t lane, const train::Checkpoint& checkpoint) {
    const at::NoGradGuard no_grad;
    const auto r = static_cast<std::int64_t>(lane);
    for (auto& [name, target] : lane_arrays(lane, buffers())) at::Tensor(target).copy_(*checkpoint.find(name));
    const auto counter = [&](const char* name) {
        return *checkpoint.find(std::string("counter/") + name)->data_ptr<std::int64_t>();
    };
    optimizer->updates().select(0, r).fill_(counter("updates"));
    optimizer->skipped().select(0, r).fill_(counter("skipped"));
    optimizer->live().select(0, r).fill_(counter("live") != 0);

    LaneState& state = states[lane];
    state = LaneState{};
    state.step = counter("ended_step");
    state.last = evaluation(checkpoint, "last");
    state.best = evaluation(checkpoint, "best");
    const bool ended = !checkpoint.fact("ended").empty();
    window.restore(lane, window_sums(checkpoint, ended ? state.step : checkpoint.step));
    if (ended) freeze(lane, StopReason::early_stop, state.step, {});
}

// Nothing where it is damaged, which its lane hears. Throws where it is refused.
std::optional<train::Checkpoint> Trainer::Impl::good_checkpoint(std::size_t lane, std::int64_t at_step) {
    const std::string& folder = lanes[lane].checkpoint_folder;
    try {
        train::Checkpoint checkpoint = train::read_checkpoint(folder, at_step);
        check_identity(lane, checkpoint, train::checkpoint_path(folder, at_step));
        return checkpoint;
    } catch (const Error& error) {
        if (error.code() == ExitCode::usage) throw;
        warn(lane, fmt::format("{}; going back to the one before", error.what()));
        return std::nullopt;
    }
}

std::int64_t Trainer::Impl::resume() {
    PALIMPSEST_ASSERT(step == 0 && !has_run, "resume comes before run; step {}", step);
    std::vector<std::vector<std::int64_t>> candidates(lanes.size());  // ascending steps of the checkpoints that may be good
    std::vector<train::Checkpoint> loaded(lanes.size());
    const auto for_lanes = [&](const auto& action) {
        for (std::size_t lane = 0; lane < lanes.size(); ++lane)
            if (!states[lane].ended) guarded(lane, [&] { action(lane, lanes[lane].checkpoint_folder); });
    };
    const auto newest_common = [&] {
        std::optional<std::vector<std::int64_t>> common;
        for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
            if (states[lane].ended) continue;
            if (!common) common = candidates[lane];
            std::erase_if(*common,
                          [&](std::int64_t s) { return !std::binary_search(candidates[lane].begin(), candidates[lane].end(), s); });
        }
        return common && !common->empty() ? common->back() : 0;
    };
    bool any = false;
    for_lanes([&](std::size_t lane, const std::string& folder) {
        if (!folder.empty()) candidates[lane] = train::checkpoint_steps(folder);
        any = any || !candidates[lane].empty();
    });
    // A lane whose newest is damaged leads all to an older one; a lane that is refused leaves the others among themselves.
    std::int64_t chosen = 0;
    do {
        chosen = newest_common();
        if (chosen == 0) break;
        for_lanes([&](std::size_t lane, const std::string&) {
            if (std::optional<train::Checkpoint> good = good_checkpoint(lane, chosen)) {
                loaded[lane] = std::move(*good);
            } else {
                std::erase(candidates[lane], chosen);
            }
        });
    } while (newest_common() != chosen);

    step = chosen;
    window.restart(step);
    for_lanes([&](std::size_t lane, const std::string& folder) {
        // Newer ones are damaged, or other lanes lack them: this run makes them again.
        if (!folder.empty()) train::remove_checkpoints_after(folder, step);
        if (step == 0) {
            if (any) warn(lane, "no step of which all lanes have a good checkpoint: starting from the beginning");
            return;
        }
        unpack(lane, loaded[lane]);
        for (const auto& [key, here] : {std::pair<std::string, std::string>{"threads", std::to_string(runtime.threads)},
                                        {"device", runtime.device.str()},
                                        {"lanes", std::to_string(lanes.size())}}) {
            const std::string& there = loaded[lane].fact(key);
            if (there != here)
                warn(lane, fmt::format("resumed with {} {} (before: {}): the numbers go on to rounding, not bit for bit", key, here,
                                       there));
        }
    });
    return step;
}

}  // namespace palimpsest
