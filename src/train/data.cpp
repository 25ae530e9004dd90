#include "train/data.h"

#include "core/error.h"
#include "core/philox.h"
#include "ops/cuda/stream.h"

#include <algorithm>
#include <limits>

namespace palimpsest::train {
namespace {

constexpr std::int64_t most_fresh = std::int64_t{1} << segment_bits;

// These bound the products of steps and examples, and the table of turns.
constexpr std::int64_t most_steps = std::int64_t{1} << 28, most_batch = std::int64_t{1} << 30;

// Steps times examples of many segments do not fit 64 bits.
__extension__ using Wide = __int128;

std::int64_t batches_of(const Segment& segment, std::int64_t batch) { return (segment.examples + batch - 1) / batch; }

// Segments that come one after the other, and a segment alone, need no table of turns.
bool take_turns(const std::vector<Segment>& segments, const DataSpec& data) {
    return segments.size() > 1 && data.segments == SegmentOrder::interleaved;
}

std::vector<Segment> compile_list(const Task& task, const std::vector<SegmentSpec>& list) {
    std::vector<Segment> out;
    for (const SegmentSpec& spec : list) {
        try {
            out.push_back({task.compile(spec.options.get()), spec.examples, spec.label});
        } catch (const Error& error) {
            if (!spec.source.text) throw;
            throw Error(error.code(), fmt::format("{}: error: {}", spec.source.where(), error.what()));
        }
    }
    return out;
}

}  // namespace

Segments compile_segments(const TaskSpec& spec) {
    const Task& task = get_task(spec.name);
    if (spec.train.empty()) fail(ExitCode::usage, "task.train has no segment: nothing to train on");
    if (spec.test.empty()) fail(ExitCode::usage, "task.test has no segment: nothing to be judged by");
    Segments out;
    out.shallow = task.facts().shallow;
    out.train = compile_list(task, spec.train);
    out.test = compile_list(task, spec.test);
    out.valid = compile_list(task, spec.valid.empty() ? spec.test : spec.valid);

    const Segment& first = out.train.front();
    out.vocabulary = first.program->shape().vocabulary.size;
    for (const auto& [list, name] : {std::pair{&out.train, "train"}, {&out.valid, "valid"}, {&out.test, "test"}}) {
        for (const Segment& segment : *list) {
            const Shape& shape = segment.program->shape();
            out.longest = std::max(out.longest, shape.length);
            if (shape.vocabulary.size != out.vocabulary)
                fail(ExitCode::usage,
                     "all segments of a run share one vocabulary, but train segment '{}' of task '{}' has {} tokens and {} segment "
                     "'{}' has {}; "
                     "set the vocabulary once, at the level of task",
                     first.label, spec.name, out.vocabulary, name, segment.label, shape.vocabulary.size);
            if (shape.queries < 1)
                fail(ExitCode::usage, "{} segment '{}' of task '{}' has no scored answers", name, segment.label, spec.name);
            if (segment.examples < 1 || segment.examples >= std::numeric_limits<std::uint32_t>::max())
                fail(ExitCode::usage, "{} segment '{}' of task '{}' has {} examples; from 1 to 4294967294 are possible", name,
                     segment.label, spec.name, segment.examples);
        }
    }
    return out;
}

StepCount count_steps(const std::vector<Segment>& segments, const TrainSpec& train, const DataSpec& data) {
    PALIMPSEST_ASSERT(train.batch >= 1 && train.batch <= most_batch, "a batch of {}", train.batch);
    StepCount count;
    for (const Segment& segment : segments) count.epoch_steps += batches_of(segment, train.batch);
    if (train.epochs > most_steps / count.epoch_steps)
        fail(ExitCode::usage,
             "train.epochs is {}, but epochs of {} batches make more than {} steps; lower train.epochs or raise train.batch",
             train.epochs, count.epoch_steps, most_steps);
    count.steps = train.epochs > 0 ? train.epochs * count.epoch_steps : train.steps;
    if (count.steps < 1 || count.steps > most_steps)
        fail(ExitCode::usage, "train.steps is {}; from 1 to {} are possible", count.steps, most_steps);
    if (data.mode == DataMode::fresh && count.steps * train.batch > most_fresh)
        fail(ExitCode::usage,
             "train.steps {} x train.batch {} are more than the {} fresh examples that a run can tell apart; lower one of them",
             count.steps, train.batch, most_fresh);
    if (take_turns(segments, data)) {
        const std::int64_t slots = data.mode == DataMode::fixed ? std::min(count.steps, count.epoch_steps) : count.steps;
        count.table_bytes = slots * static_cast<std::int64_t>(sizeof(BatchOrder::Slot));
    }
    return count;
}

BatchOrder::BatchOrder(const std::vector<Segment>& segments, const TrainSpec& train, const DataSpec& data)
    : count_(count_steps(segments, train, data)), batch_(train.batch), mode_(data.mode), order_(data.order) {
    const bool fixed = mode_ == DataMode::fixed;
    std::vector<std::int64_t> weights;
    for (const Segment& segment : segments) {
        segment_examples_.push_back(segment.examples);
        weights.push_back(fixed ? batches_of(segment, batch_) : segment.examples);
    }
    if (take_turns(segments, data)) {
        fill_interleaved(weights, count_.table_bytes / static_cast<std::int64_t>(sizeof(Slot)));
        return;
    }
    // One after the other, in each epoch or over the whole run: segment s ends where its cumulated share of the steps does.
    const std::int64_t steps = fixed ? count_.epoch_steps : count_.steps;
    Wide total = 0, cumulated = 0;
    for (const std::int64_t weight : weights) total += weight;
    for (const std::int64_t weight : weights) {
        cumulated += weight;
        ends_.push_back(static_cast<std::int64_t>(steps * cumulated / total));
    }
}

void BatchOrder::fill_interleaved(const std::vector<std::int64_t>& weights, std::int64_t count) {
    // behind[s] = weight * turns - total * batches had. Each turn adds its weight to every segment and takes the total from the one
    // chosen, which is the largest (the first of equals). No segment ever falls to -total, so at the end of a period all are 0.
    std::int64_t total = 0;
    for (std::int64_t weight : weights) total += weight;
    std::vector<std::int64_t> behind(weights.size(), 0);
    std::vector<std::uint32_t> had(weights.size(), 0);
    slots_.reserve(static_cast<std::size_t>(count));
    for (std::int64_t turn = 0; turn < count; ++turn) {
        for (std::size_t s = 0; s < weights.size(); ++s) behind[s] += weights[s];
        const auto chosen = static_cast<std::size_t>(std::max_element(behind.begin(), behind.end()) - behind.begin());
        behind[chosen] -= total;
        slots_.push_back({static_cast<std::uint32_t>(chosen), had[chosen]++});
    }
}

std::int64_t BatchOrder::most_rows(std::size_t segment) const {
    return mode_ == DataMode::fixed ? std::min(batch_, segment_examples_[segment]) : batch_;
}

Turn BatchOrder::at(std::int64_t step) const {
    PALIMPSEST_ASSERT(step >= 0 && step < steps(), "step {} of {}", step, steps());
    const bool fixed = mode_ == DataMode::fixed;
    const std::int64_t place = fixed ? step % count_.epoch_steps : step;
    Turn turn{0, 0, fixed ? step / count_.epoch_steps : 0, batch_};
    if (!slots_.empty()) {
        const Slot& slot = slots_[static_cast<std::size_t>(place)];
        turn.segment = slot.segment;
        turn.batch = slot.batch;
    } else {
        const auto end = std::upper_bound(ends_.begin(), ends_.end(), place);
        turn.segment = end - ends_.begin();
        turn.batch = end == ends_.begin() ? place : place - *(end - 1);
    }
    if (fixed) turn.rows = std::min(batch_, segment_examples_[static_cast<std::size_t>(turn.segment)] - turn.batch * batch_);
    return turn;
}

BatchRange BatchOrder::range(const Turn& turn) const {
    return {.segment = static_cast<std::uint64_t>(turn.segment) << segment_bits,
            .first = static_cast<std::uint64_t>(turn.batch * batch_),
            .epoch = static_cast<std::uint64_t>(turn.epoch),
            .examples = static_cast<std::uint32_t>(segment_examples_[static_cast<std::size_t>(turn.segment)]),
            .shuffled = mode_ == DataMode::fixed && order_ == DataOrder::shuffled};
}

std::vector<std::uint64_t> BatchOrder::examples(const Turn& turn, std::uint64_t seed) const {
    const BatchIds ids(range(turn), seed);
    std::vector<std::uint64_t> out(static_cast<std::size_t>(turn.rows));
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = ids(static_cast<std::int64_t>(i));
    return out;
}

TrainData::TrainData(const Segments& segments, BatchOrder order, std::vector<std::uint64_t> lane_seeds, at::Device device,
                     int threads)
    : segments_(segments.train), order_(std::move(order)), lane_seeds_(std::move(lane_seeds)), device_(device), threads_(threads) {
    const auto compiled = [](const Segment& segment) { return segment.program->on_device(); };
    if (!device_.is_cuda() || !std::all_of(segments_.begin(), segments_.end(), compiled)) return;
    const auto here = at::TensorOptions().dtype(at::kLong);
    at::Tensor seeds = at::empty({lanes()}, here);
    std::copy(lane_seeds_.begin(), lane_seeds_.end(), seeds.data_ptr<std::int64_t>());
    seeds_ = seeds.to(device_);
    fault_ = at::zeros({1}, here.pinned_memory(true));
    // One batch is made after the other, so that all segments share the memory of the largest.
    std::int64_t words = 1;
    for (std::size_t s = 0; s < segments_.size(); ++s)
        words = std::max(words, segments_[s].program->workspace_words() * lanes() * order_.most_rows(s));
    workspace_ = at::empty({words}, here.device(device_));
    for (const Segment& segment : segments_) {
        const std::span<const std::uint32_t> table = segment.program->table();
        at::Tensor copy = at::empty({static_cast<std::int64_t>(table.size())}, at::kInt);
        std::copy(table.begin(), table.end(), copy.data_ptr<std::int32_t>());
        tables_.push_back(copy.to(device_));
    }
}

Batch TrainData::batch(std::int64_t step) const {
    if (!tables_.empty()) return on_device(step);
    const bool gpu = device_.is_cuda();
    Batch out = on_host(step, gpu);
    if (gpu)
        for (at::Tensor* part : {&out.tokens, &out.positions, &out.targets}) *part = part->to(device_, /*non_blocking=*/true);
    return out;
}

Batch TrainData::empty(const Turn& turn, const at::TensorOptions& options) const {
    const Shape& shape = program_of(turn).shape();
    const std::int64_t answers = shape.queries * shape.vocabulary.value_tokens;
    return {at::empty({lanes(), turn.rows, shape.length}, options), at::empty({lanes(), turn.rows, answers}, options),
            at::empty({lanes(), turn.rows * answers}, options), shape.vocabulary.value_tokens};
}

Batch TrainData::on_host(std::int64_t step, bool pinned) const {
    const Turn turn = order_.at(step);
    Batch out = empty(turn, at::TensorOptions().dtype(at::kLong).pinned_memory(pinned));
    for (std::int64_t lane = 0; lane < lanes(); ++lane) {
        const std::uint64_t seed = lane_seeds_[static_cast<std::size_t>(lane)];
        BatchView view;
        view.tokens = out.tokens.select(0, lane).data_ptr<std::int64_t>();
        view.positions = out.positions.select(0, lane).data_ptr<std::int64_t>();
        view.targets = out.targets.select(0, lane).data_ptr<std::int64_t>();
        program_of(turn).generate(seed, Stream::train, order_.examples(turn, seed), view, threads_);
    }
    return out;
}

void TrainData::check() const {
    if (!fault_.defined()) return;
    const std::int64_t marked = *static_cast<const volatile std::int64_t*>(fault_.const_data_ptr<std::int64_t>());
    if (marked == 0) return;
    // The program breaks its shape on the host as well, which says in which example and how.
    static_cast<void>(on_host(marked - 1, false));
    PALIMPSEST_ASSERT(false, "step {}: a program broke its shape on the GPU and keeps to it on the host", marked - 1);
}

Batch TrainData::on_device(std::int64_t step) const {
    const Turn turn = order_.at(step);
    Batch out = empty(turn, at::TensorOptions().dtype(at::kLong).device(device_));
    DeviceBatch batch;
    batch.range = order_.range(turn);
    batch.lanes = lanes();
    batch.rows = turn.rows;
    batch.seeds = reinterpret_cast<const std::uint64_t*>(seeds_.data_ptr<std::int64_t>());
    batch.table = reinterpret_cast<const std::uint32_t*>(tables_[static_cast<std::size_t>(turn.segment)].data_ptr<std::int32_t>());
    batch.out.tokens = out.tokens.data_ptr<std::int64_t>();
    batch.out.positions = out.positions.data_ptr<std::int64_t>();
    batch.out.targets = out.targets.data_ptr<std::int64_t>();
    batch.workspace = workspace_.data_ptr<std::int64_t>();
    batch.fault = fault_.data_ptr<std::int64_t>();
    batch.mark = step + 1;
    batch.stream = ops::default_stream(device_);
    program_of(turn).generate_on_device(Stream::train, batch);
    return out;
}

}  // namespace palimpsest::train
