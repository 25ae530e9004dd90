#include "train/data.h"

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "core/philox.h"

namespace palimpsest::train {
namespace {

// Training segments never share draws: the segment's number stands in the bits above any example count.
constexpr int segment_bits = 40;

std::uint64_t hash_row(const std::int64_t* tokens, std::int64_t length) {
    std::uint64_t hash = 0xCBF29CE484222325ull ^ static_cast<std::uint64_t>(length);
    for (std::int64_t t = 0; t < length; ++t) {
        hash = (hash ^ static_cast<std::uint64_t>(tokens[t])) * 0x9E3779B97F4A7C15ull;
        hash ^= hash >> 29;
    }
    return hash;
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

// Token rows of a range of examples, without the rest of the batch's tensors.
struct RowBuffer {
    std::vector<std::int64_t> tokens, positions, targets;
    void generate(const Program& program, std::uint64_t seed, Stream stream, std::span<const std::uint64_t> ids, int threads) {
        const Shape& shape = program.shape();
        const auto rows = static_cast<std::int64_t>(ids.size());
        const std::int64_t answers = rows * shape.queries * shape.vocabulary.value_tokens;
        tokens.resize(static_cast<std::size_t>(rows * shape.length));
        positions.resize(static_cast<std::size_t>(answers));
        targets.resize(static_cast<std::size_t>(answers));
        BatchView view;
        view.tokens = tokens.data();
        view.positions = positions.data();
        view.targets = targets.data();
        program.generate(seed, stream, ids, view, threads);
    }
};

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

BatchOrder::BatchOrder(const std::vector<Segment>& segments, const TrainSpec& train, const DataSpec& data)
    : batch_(train.batch), mode_(data.mode), order_(data.order) {
    std::vector<std::int64_t> epoch_batches;
    for (const Segment& segment : segments) {
        segment_examples_.push_back(segment.examples);
        epoch_batches.push_back((segment.examples + batch_ - 1) / batch_);
        epoch_steps_ += epoch_batches.back();
    }
    steps_ = train.epochs > 0 ? train.epochs * epoch_steps_ : train.steps;

    // Bounds products and the table below.
    constexpr std::int64_t most_steps = std::int64_t{1} << 28;
    if (steps_ < 1 || steps_ > most_steps)
        fail(ExitCode::usage, "train.steps is {}; from 1 to {} are possible", steps_, most_steps);

    if (mode_ == DataMode::fixed) {
        if (data.segments == SegmentOrder::in_order)
            fill_in_order(epoch_batches);
        else
            fill_interleaved(epoch_batches, epoch_steps_);
        return;
    }
    if (data.segments == SegmentOrder::interleaved) {
        fill_interleaved(segment_examples_, steps_);
        return;
    }
    // One after the other over the whole run: segment s ends where its cumulated share of the steps does.
    std::int64_t total = 0, before = 0, cumulated = 0;
    for (std::int64_t examples : segment_examples_) total += examples;
    std::vector<std::int64_t> counts;
    for (std::int64_t examples : segment_examples_) {
        cumulated += examples;
        const auto end = steps_ * cumulated / total;
        counts.push_back(end - before);
        before = end;
    }
    fill_in_order(counts);
}

void BatchOrder::fill_in_order(const std::vector<std::int64_t>& counts) {
    for (std::size_t s = 0; s < counts.size(); ++s)
        for (std::int64_t b = 0; b < counts[s]; ++b)
            slots_.push_back({static_cast<std::uint32_t>(s), static_cast<std::uint32_t>(b)});
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

Turn BatchOrder::at(std::int64_t step) const {
    PALIMPSEST_ASSERT(step >= 0 && step < steps_, "step {} of {}", step, steps_);
    const bool fixed = mode_ == DataMode::fixed;
    const Slot& slot = slots_[static_cast<std::size_t>(fixed ? step % epoch_steps_ : step)];
    Turn turn{slot.segment, slot.batch, fixed ? step / epoch_steps_ : 0, batch_};
    if (fixed) turn.rows = std::min(batch_, segment_examples_[slot.segment] - turn.batch * batch_);
    return turn;
}

std::vector<std::uint64_t> BatchOrder::examples(const Turn& turn, std::uint64_t seed) const {
    const std::uint64_t segment = static_cast<std::uint64_t>(turn.segment) << segment_bits;
    const auto first = static_cast<std::uint64_t>(turn.batch * batch_);
    std::vector<std::uint64_t> out(static_cast<std::size_t>(turn.rows));
    if (mode_ == DataMode::fixed && order_ == DataOrder::shuffled) {
        Rng rng(seed, Stream::shuffle, segment | static_cast<std::uint64_t>(turn.epoch));
        const Permutation permutation(static_cast<std::uint32_t>(segment_examples_[static_cast<std::size_t>(turn.segment)]), rng);
        for (std::size_t i = 0; i < out.size(); ++i) out[i] = segment | permutation(static_cast<std::uint32_t>(first + i));
    } else {
        for (std::size_t i = 0; i < out.size(); ++i) out[i] = segment | (first + i);
    }
    return out;
}

HeldOut::HeldOut(const Segments& segments, std::uint64_t data_seed, int threads) {
    RowBuffer rows;
    const auto add = [&](const std::vector<Segment>& list, Stream stream) {
        for (const Segment& segment : list) {
            const std::int64_t length = segment.program->shape().length;
            lengths_.insert(length);
            for (std::int64_t first = 0; first < segment.examples; first += 1024) {
                std::vector<std::uint64_t> ids;
                for (std::int64_t i = first; i < std::min(first + 1024, segment.examples); ++i)
                    ids.push_back(static_cast<std::uint64_t>(i));
                rows.generate(*segment.program, data_seed, stream, ids, threads);
                for (std::size_t i = 0; i < ids.size(); ++i)
                    hashes_.insert(hash_row(rows.tokens.data() + static_cast<std::int64_t>(i) * length, length));
            }
        }
    };
    add(segments.valid, Stream::valid);
    add(segments.test, Stream::test);
}

std::int64_t HeldOut::count(const std::int64_t* tokens, std::int64_t rows, std::int64_t length) const {
    if (!has_length(length)) return 0;
    std::int64_t found = 0;
    for (std::int64_t i = 0; i < rows; ++i)
        found += static_cast<std::int64_t>(hashes_.count(hash_row(tokens + i * length, length)));
    return found;
}

TrainData::TrainData(const Segments& segments, BatchOrder order, std::vector<std::uint64_t> lane_seeds, at::Device device,
                     int threads)
    : segments_(segments.train), order_(std::move(order)), lane_seeds_(std::move(lane_seeds)), device_(device), threads_(threads) {}

Batch TrainData::batch(std::int64_t step) const {
    const Turn turn = order_.at(step);
    const Program& program = *segments_[static_cast<std::size_t>(turn.segment)].program;
    const Shape& shape = program.shape();
    const auto lanes = static_cast<std::int64_t>(lane_seeds_.size());
    const std::int64_t answers = shape.queries * shape.vocabulary.value_tokens;
    const bool gpu = device_.is_cuda();
    const auto options = at::TensorOptions().dtype(at::kLong).pinned_memory(gpu);
    Batch out{at::empty({lanes, turn.rows, shape.length}, options), at::empty({lanes, turn.rows, answers}, options),
              at::empty({lanes, turn.rows * answers}, options), shape.vocabulary.value_tokens};
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
        const std::uint64_t seed = lane_seeds_[static_cast<std::size_t>(lane)];
        BatchView view;
        view.tokens = out.tokens.data_ptr<std::int64_t>() + lane * turn.rows * shape.length;
        view.positions = out.positions.data_ptr<std::int64_t>() + lane * turn.rows * answers;
        view.targets = out.targets.data_ptr<std::int64_t>() + lane * turn.rows * answers;
        program.generate(seed, Stream::train, order_.examples(turn, seed), view, threads_);
    }
    if (gpu) {
        out.tokens = out.tokens.to(device_, /*non_blocking=*/true);
        out.positions = out.positions.to(device_, /*non_blocking=*/true);
        out.targets = out.targets.to(device_, /*non_blocking=*/true);
    }
    return out;
}

std::int64_t TrainData::overlap(const HeldOut& held_out, std::int64_t until) const {
    RowBuffer rows;
    std::int64_t found = 0;
    for (std::int64_t step = 0; step < until; ++step) {
        const Turn turn = order_.at(step);
        const Program& program = *segments_[static_cast<std::size_t>(turn.segment)].program;
        if (!held_out.has_length(program.shape().length)) continue;
        for (std::uint64_t seed : lane_seeds_) {
            rows.generate(program, seed, Stream::train, order_.examples(turn, seed), threads_);
            found += held_out.count(rows.tokens.data(), turn.rows, program.shape().length);
        }
    }
    return found;
}

}  // namespace palimpsest::train
