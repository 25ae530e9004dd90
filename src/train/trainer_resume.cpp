// Checkpoints of a pack: one file a lane, all at one step, each complete in itself, so that a lane can go on in another pack.
#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/file.h"
#include "train/trainer_impl.h"

namespace palimpsest {
namespace {

using Arrays = std::vector<std::pair<std::string, at::Tensor>>;

constexpr std::size_t kept_checkpoints = 2;  // a damaged newest one falls back to the one before
constexpr std::array<std::pair<StopReason, const char*>, 4> reason_names{{{StopReason::finished, "finished"},
                                                                          {StopReason::early_stop, "early_stop"},
                                                                          {StopReason::interrupted, "interrupted"},
                                                                          {StopReason::non_finite, "non_finite"}}};

template <class T>
at::Tensor array_of(const T* data, std::vector<std::int64_t> shape, at::ScalarType type) {
    at::Tensor out = at::empty(shape, type);
    if (out.numel() > 0) std::copy_n(data, out.numel(), out.data_ptr<T>());
    return out;
}

at::Tensor number(std::int64_t value) {
    return at::full({1}, value, at::kLong);
}

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

}  // namespace

// Everything of a lane that has a fixed shape. The tensors are views into the three flat buffers (CPU).
std::vector<std::pair<std::string, at::Tensor>> Trainer::Impl::lane_arrays(std::size_t lane, const at::Tensor& values,
                                                                           const at::Tensor& first, const at::Tensor& second) {
    Arrays out;
    for (const nn::ParameterInfo& info : model.parameters().table()) {
        const auto slice = [&](const at::Tensor& flat) {
            return flat.narrow(0, info.offset + static_cast<std::int64_t>(lane) * info.numel, info.numel).view(info.shape);
        };
        out.emplace_back("parameter/" + info.name, slice(values));
        if (!info.trained) continue;
        out.emplace_back("first_moment/" + info.name, slice(first));
        out.emplace_back("second_moment/" + info.name, slice(second));
    }
    return out;
}

train::Checkpoint Trainer::Impl::pack(std::size_t lane, const at::Tensor& values, const at::Tensor& first,
                                      const at::Tensor& second) {
    const auto r = static_cast<std::int64_t>(lane);
    const LaneState& state = states[lane];
    train::Checkpoint out;
    out.step = step;
    out.facts = identity(lane);
    out.facts.insert(
        out.facts.end(),
        {{"lanes", std::to_string(lanes.size())}, {"threads", std::to_string(runtime.threads)}, {"device", runtime.device.str()}});
    if (state.ended) {
        for (const auto& [reason, name] : reason_names)
            if (reason == state.reason) out.facts.emplace_back("ended", name);
        out.facts.emplace_back("message", state.message);
    }
    out.arrays = lane_arrays(lane, values, first, second);
    const auto counter = [&](const at::Tensor& by_lane) { return by_lane.select(0, r).to(at::kLong).cpu().view({1}); };
    out.arrays.emplace_back("counter/updates", counter(optimizer.updates()));
    out.arrays.emplace_back("counter/skipped", counter(optimizer.skipped()));
    out.arrays.emplace_back("counter/live", counter(optimizer.live()));
    out.arrays.emplace_back("counter/ended_step", number(state.step));
    out.arrays.emplace_back("log/window", ring.narrow(0, 0, window_rows).select(1, r).cpu().contiguous());
    add_evaluation(out.arrays, "last", state.last);
    add_evaluation(out.arrays, "best", state.best);
    return out;
}

// What makes the lane this run and no other.
std::vector<std::pair<std::string, std::string>> Trainer::Impl::identity(std::size_t lane) const {
    const LaneValues& v = lanes[lane].values;
    return {{"run_id", lanes[lane].run_id},
            {"seed", fmt::format("{}", v.seed)},
            {"lr", fmt::format("{}", v.lr)},
            {"weight_decay", fmt::format("{}", v.weight_decay)},
            {"beta1", fmt::format("{}", v.beta1)},
            {"beta2", fmt::format("{}", v.beta2)},
            {"init_scale", fmt::format("{}", v.init_scale)}};
}

void Trainer::Impl::write_checkpoints() {
    const at::Tensor values = model.parameters().values().detach().cpu(), first = optimizer.first_moment().cpu(),
                     second = optimizer.second_moment().cpu();
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
        const std::string& folder = lanes[lane].checkpoint_folder;
        if (folder.empty()) continue;
        const train::Checkpoint checkpoint = pack(lane, values, first, second);
        const auto broken = std::find_if(checkpoint.arrays.begin(), checkpoint.arrays.end(), [](const auto& array) {
            return array.first.starts_with("parameter/") && !array.second.isfinite().all().template item<bool>();
        });
        // A checkpoint that is not finite would push a good one out.
        if (broken != checkpoint.arrays.end()) {
            warn(lane, fmt::format("step {}, lane {}: '{}' is not finite; no checkpoint is written, the last finite one stays",
                                   step, lane, broken->first));
            continue;
        }
        if (lanes[lane].sink) lanes[lane].sink->checkpoint_begins(step);
        make_folders(folder);
        const std::string path = train::checkpoint_path(folder, step);
        train::write_checkpoint(path, checkpoint);
        train::rotate_checkpoints(folder, kept_checkpoints);
        if (lanes[lane].sink) lanes[lane].sink->checkpoint_written(path, step);
    }
}

void Trainer::Impl::check_identity(std::size_t lane, const train::Checkpoint& checkpoint, const std::string& path) {
    for (const auto& [key, here] : identity(lane)) {
        const std::string& there = checkpoint.fact(key);
        if (there == here || (key == "run_id" && (there.empty() || here.empty()))) continue;
        fail(ExitCode::usage, "checkpoint {} belongs to another run: {} is {} there and {} here", path, key, there, here);
    }
    const at::Tensor &values = model.parameters().values(), &first = optimizer.first_moment(), &second = optimizer.second_moment();
    Arrays expected = lane_arrays(lane, values, first, second);
    for (const char* name : {"updates", "skipped", "live", "ended_step"})
        expected.emplace_back(std::string("counter/") + name, number(0));
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
    for (auto& [name, target] : lane_arrays(lane, model.parameters().values(), optimizer.first_moment(), optimizer.second_moment()))
        at::Tensor(target).copy_(*checkpoint.find(name));
    const auto counter = [&](const char* name) {
        return *checkpoint.find(std::string("counter/") + name)->data_ptr<std::int64_t>();
    };
    optimizer.updates().select(0, r).fill_(counter("updates"));
    optimizer.skipped().select(0, r).fill_(counter("skipped"));
    optimizer.live().select(0, r).fill_(counter("live") != 0);

    LaneState& state = states[lane];
    state = LaneState{};
    state.step = counter("ended_step");
    for (const auto& [reason, name] : reason_names) {
        if (checkpoint.fact("ended") != name) continue;
        state.ended = true;
        state.reason = reason;
    }
    state.message = checkpoint.fact("message");
    state.last = evaluation(checkpoint, "last");
    state.best = evaluation(checkpoint, "best");
    if (const at::Tensor* rows = checkpoint.find("log/window"); rows && rows->dim() == 2 && rows->size(1) == ring_columns) {
        window_rows = std::min(rows->size(0), log_every);
        ring.narrow(0, 0, window_rows).select(1, r).copy_(rows->narrow(0, 0, window_rows));
    }
}

std::int64_t Trainer::Impl::resume() {
    PALIMPSEST_ASSERT(step == 0 && !has_run, "resume comes before run; step {}", step);
    std::vector<std::int64_t> common;  // steps of which every lane has a checkpoint
    bool any = false;
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
        const std::vector<std::int64_t> steps = lanes[lane].checkpoint_folder.empty()
                                                    ? std::vector<std::int64_t>{}
                                                    : train::checkpoint_steps(lanes[lane].checkpoint_folder);
        any = any || !steps.empty();
        if (lane == 0) common = steps;
        std::erase_if(common, [&](std::int64_t s) { return !std::binary_search(steps.begin(), steps.end(), s); });
    }
    for (auto chosen = common.rbegin(); chosen != common.rend(); ++chosen) {
        std::vector<train::Checkpoint> loaded;
        for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
            try {
                loaded.push_back(train::read_checkpoint(train::checkpoint_path(lanes[lane].checkpoint_folder, *chosen)));
            } catch (const Error& error) {
                warn(lane, fmt::format("{}; going back to the one before", error.what()));
                break;
            }
        }
        if (loaded.size() != lanes.size()) continue;
        for (std::size_t lane = 0; lane < lanes.size(); ++lane)
            check_identity(lane, loaded[lane], train::checkpoint_path(lanes[lane].checkpoint_folder, *chosen));
        for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
            unpack(lane, loaded[lane]);
            // Newer ones are damaged, or other lanes lack them: this run makes them again.
            for (std::int64_t s : train::checkpoint_steps(lanes[lane].checkpoint_folder))
                if (s > *chosen) remove_file(train::checkpoint_path(lanes[lane].checkpoint_folder, s));
            for (const auto& [key, here] : {std::pair<std::string, std::string>{"threads", std::to_string(runtime.threads)},
                                            {"device", runtime.device.str()},
                                            {"lanes", std::to_string(lanes.size())}}) {
                const std::string& there = loaded[lane].fact(key);
                if (there != here)
                    warn(lane, fmt::format("resumed with {} {} (before: {}): the numbers go on to rounding, not bit for bit", key,
                                           here, there));
            }
        }
        step = *chosen;
        return step;
    }
    for (std::size_t lane = 0; any && lane < lanes.size(); ++lane)
        warn(lane, "no step of which all lanes have a good checkpoint: starting from the beginning");
    return 0;
}

}  // namespace palimpsest
