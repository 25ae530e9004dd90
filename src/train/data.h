// Which examples a step trains on, and the tensors made of them. The segment and the place of the batch depend on (config, step)
// alone, never on a seed, so that lanes, resume and captured graphs agree; the seed only names the numbers inside an example.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "config/spec.h"
#include "ops/tensor.h"
#include "task/task.h"

namespace palimpsest::train {

// A segment with its task compiled.
struct Segment {
    std::shared_ptr<const Program> program;
    std::int64_t examples = 0;
    std::string label;
};

struct Segments {
    std::vector<Segment> train, valid, test;
    std::int64_t longest = 0;     // T of the longest segment of any list
    std::int64_t vocabulary = 0;  // shared by all of them
    std::vector<Policy> shallow;  // the task's shallow policies
};

// Throws Error(usage) where a segment's options do not fit together (with its place) or vocabularies differ.
Segments compile_segments(const TaskSpec& task);

// What one step trains on.
struct Turn {
    std::int64_t segment = 0;
    std::int64_t batch = 0;  // its number among the batches of this segment: of the run (fresh) or of the epoch (fixed)
    std::int64_t epoch = 0;  // fixed data: how often the examples have been gone through before
    std::int64_t rows = 0;   // examples of this batch; the last batch of a segment's epoch may be smaller
};

// The order of batches. An epoch is one batch after another until every segment has given ceil(examples / batch) of them.
//   interleaved: always the segment furthest behind its share, by integers alone. No segment is ever a whole batch ahead of its
//                share turns * weight / sum of weights, and at the end of every period all have exactly theirs. The weights are the
//                examples (fresh) or the batches of an epoch (fixed).
//   in_order:    one segment after the other: per epoch where data is fixed, over the whole run where it is fresh.
class BatchOrder {
public:
    BatchOrder(const std::vector<Segment>& segments, const TrainSpec& train, const DataSpec& data);

    std::int64_t steps() const { return steps_; }
    std::int64_t epoch_steps() const { return epoch_steps_; }
    Turn at(std::int64_t step) const;
    // Example ids of a turn. The lane's seed keys the permutation of shuffled fixed data and nothing else. The segment is part of
    // the id, so that no two training segments share draws.
    std::vector<std::uint64_t> examples(const Turn& turn, std::uint64_t seed) const;

private:
    struct Slot {
        std::uint32_t segment, batch;
    };
    void fill_interleaved(const std::vector<std::int64_t>& weights, std::int64_t count);
    void fill_in_order(const std::vector<std::int64_t>& counts);

    std::vector<std::int64_t> segment_examples_;
    std::int64_t batch_ = 0, steps_ = 0, epoch_steps_ = 0;
    DataMode mode_;
    DataOrder order_;
    std::vector<Slot> slots_;  // of one epoch (fixed) or of the run (fresh)
};

// [R, B, T], [R, B, Q m], [R, B Q m], all int64 on the trainer's device.
struct Batch {
    at::Tensor tokens, positions, targets;
    std::int64_t value_tokens = 1;
};

// Hashes of the valid and test examples, to be met with the training examples.
class HeldOut {
public:
    HeldOut() = default;
    HeldOut(const Segments& segments, std::uint64_t data_seed, int threads);
    // How many of `rows` rows of `length` tokens are held-out examples.
    std::int64_t count(const std::int64_t* tokens, std::int64_t rows, std::int64_t length) const;
    bool has_length(std::int64_t length) const { return lengths_.count(length) != 0; }

private:
    std::unordered_set<std::uint64_t> hashes_;
    std::unordered_set<std::int64_t> lengths_;
};

// Makes the batches of all lanes.
class TrainData {
public:
    TrainData(const Segments& segments, BatchOrder order, std::vector<std::uint64_t> lane_seeds, at::Device device, int threads);

    const BatchOrder& order() const { return order_; }
    Batch batch(std::int64_t step) const;
    // Training examples of all lanes that are held-out examples too, among the steps before `until`.
    std::int64_t overlap(const HeldOut& held_out, std::int64_t until) const;

private:
    const std::vector<Segment>& segments_;
    BatchOrder order_;
    std::vector<std::uint64_t> lane_seeds_;
    at::Device device_;
    int threads_;
};

}  // namespace palimpsest::train
