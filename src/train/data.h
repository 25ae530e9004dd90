// Which examples a step trains on, and the tensors made of them. The segment and the place of the batch depend on (config, step)
// alone, never on a seed, so that lanes, resume and captured graphs agree; the seed only names the numbers inside an example.
#pragma once

#include "config/spec.h"
#include "ops/tensor.h"
#include "task/batch_ids.h"
#include "task/task.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

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

// How long a run lasts. An epoch is one batch after another until every segment has given ceil(examples / batch) of them.
struct StepCount {
    std::int64_t steps = 0, epoch_steps = 0;
    std::int64_t table_bytes = 0;  // memory that the order of the batches takes
};
// Throws Error(usage) where there are more steps or examples than a run can tell apart.
StepCount count_steps(const std::vector<Segment>& segments, const TrainSpec& train, const DataSpec& data);

// The order of batches.
//   interleaved: always the segment furthest behind its share, by integers alone. No segment is ever a whole batch ahead of its
//                share turns * weight / sum of weights, and at the end of every period all have exactly theirs. The weights are the
//                examples (fresh) or the batches of an epoch (fixed).
//   in_order:    one segment after the other: per epoch where data is fixed, over the whole run where it is fresh.
class BatchOrder {
public:
    struct Slot {
        std::uint32_t segment, batch;
    };

    BatchOrder(const std::vector<Segment>& segments, const TrainSpec& train, const DataSpec& data);

    std::int64_t steps() const { return count_.steps; }
    std::int64_t epoch_steps() const { return count_.epoch_steps; }
    std::int64_t most_rows(std::size_t segment) const;  // of a turn of this segment
    Turn at(std::int64_t step) const;
    // Which of its segment's examples a turn takes, and their numbers in the lane of a seed.
    BatchRange range(const Turn& turn) const;
    std::vector<std::uint64_t> examples(const Turn& turn, std::uint64_t seed) const;

private:
    void fill_interleaved(const std::vector<std::int64_t>& weights, std::int64_t count);

    std::vector<std::int64_t> segment_examples_;
    StepCount count_;
    std::int64_t batch_ = 0;
    DataMode mode_;
    DataOrder order_;
    // Of one epoch (fixed) or of the run (fresh): a slot for each step, or, where the segments come one after the other, the step
    // at which each of them ends.
    std::vector<Slot> slots_;
    std::vector<std::int64_t> ends_;
};

// [R, B, T], [R, B, Q m], [R, B Q m], all int64 on the trainer's device.
struct Batch {
    at::Tensor tokens, positions, targets;
    std::int64_t value_tokens = 1;
};

// Makes the batches of all lanes: on the trainer's device where nvcc has compiled the task, which is every task of tasks/ in a
// build with CUDA, or else on the host. Either way the same numbers.
class TrainData {
public:
    TrainData(const Segments& segments, BatchOrder order, std::vector<std::uint64_t> lane_seeds, at::Device device, int threads);

    const BatchOrder& order() const { return order_; }
    Batch batch(std::int64_t step) const;
    // Throws the error of a program that broke its shape on the device, whose rows were then all zeros. To be called when the
    // device has been waited for, and before anything is made of what was trained.
    void check() const;

private:
    std::int64_t lanes() const { return static_cast<std::int64_t>(lane_seeds_.size()); }
    const Program& program_of(const Turn& turn) const { return *segments_[static_cast<std::size_t>(turn.segment)].program; }
    Batch empty(const Turn& turn, const at::TensorOptions& options) const;
    Batch on_host(std::int64_t step, bool pinned) const;
    Batch on_device(std::int64_t step) const;

    const std::vector<Segment>& segments_;
    BatchOrder order_;
    std::vector<std::uint64_t> lane_seeds_;
    at::Device device_;
    int threads_;
    // The device holds the lanes' seeds [R], a table for each segment's program, and working memory that all programs share. The
    // fault is in pinned memory of the host: the step in which a program broke its shape, plus one. All are undefined or empty
    // where batches are made on the host.
    at::Tensor seeds_, workspace_, fault_;
    std::vector<at::Tensor> tables_;
};

}  // namespace palimpsest::train
