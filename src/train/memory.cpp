#include "train/memory.h"

#include "core/text.h"
#include "train/optimizer.h"

#include <fmt/format.h>

#include <algorithm>

namespace palimpsest::train {
namespace {

constexpr double index_bytes = 8, value_bytes = 4;

std::string bytes_text(double bytes) { return format_bytes(static_cast<std::int64_t>(std::min(bytes, 9e18))); }

// Of one lane: tokens, positions and targets; hidden states, of which `kept` live at one time; logits and `gradients` of them.
double batch_bytes(const Segment& segment, std::int64_t batch, std::int64_t width, double kept, double gradients) {
    const Shape& shape = segment.program->shape();
    const auto rows = static_cast<double>(batch), tokens = rows * static_cast<double>(shape.length);
    const double answers = rows * static_cast<double>(shape.queries) * static_cast<double>(shape.vocabulary.value_tokens);
    return tokens * index_bytes + answers * 2 * index_bytes + tokens * static_cast<double>(width) * value_bytes * kept +
           answers * static_cast<double>(shape.vocabulary.size) * value_bytes * (1 + gradients);
}

// The evaluator's: a slice of four bytes for every question, sorted out from pairs of sixteen.
double question_bytes(const Segment& segment) {
    return static_cast<double>(segment.examples) * (20 * static_cast<double>(segment.program->shape().queries) + index_bytes);
}

}  // namespace

std::vector<MemoryNeed> memory_needs(const RunSpec& spec, const Segments& segments, std::int64_t parameters, std::int64_t lanes) {
    const auto all_lanes = static_cast<double>(lanes);
    const bool on_gpu = spec.run.device == Device::cuda;
    double training = 0, evaluation = 0, questions = 0;
    for (const Segment& segment : segments.train) {
        const std::int64_t rows =
            spec.data.mode == DataMode::fixed ? std::min(spec.train.batch, segment.examples) : spec.train.batch;
        training = std::max(training, batch_bytes(segment, rows, spec.model.width, static_cast<double>(spec.model.depth) + 1, 1));
    }
    const std::int64_t eval_batch = spec.train.eval_batch > 0 ? spec.train.eval_batch : spec.train.batch;
    for (const std::vector<Segment>* list : {&segments.valid, &segments.test}) {
        for (const Segment& segment : *list) {
            evaluation = std::max(evaluation, batch_bytes(segment, std::min(eval_batch, segment.examples), spec.model.width, 2, 0));
            questions += question_bytes(segment);
        }
    }
    std::vector<MemoryNeed> needs = {
        {static_cast<double>(count_steps(segments.train, spec.train, spec.data).table_bytes), "the order of batches (train.steps)",
         "train.steps"},
        {questions, "the questions (examples of task.valid and task.test)", "task.test"},
    };
    if (on_gpu) return needs;
    const double buffers = 2 + static_cast<double>(optimizer_facts(spec.train.optimizer).states.size());
    needs.push_back({all_lanes * static_cast<double>(parameters) * buffers * value_bytes,
                     "weights, gradients and moments (model, mixers)", "model"});
    if (training >= evaluation)
        needs.push_back({all_lanes * training, "a training batch (train.batch, task.train, model)", "train.batch"});
    else
        needs.push_back({all_lanes * evaluation, "an evaluation batch (train.eval_batch, task.test, model)",
                         spec.train.eval_batch > 0 ? "train.eval_batch" : "train.batch"});
    return needs;
}

MemoryProblem memory_problem(std::vector<MemoryNeed> needs, double there) {
    double sum = 0;
    for (const MemoryNeed& need : needs) sum += need.bytes;
    if (sum <= there) return {};
    std::sort(needs.begin(), needs.end(), [](const MemoryNeed& a, const MemoryNeed& b) { return a.bytes > b.bytes; });
    std::vector<std::string> parts;
    for (const MemoryNeed& need : needs)
        if (need.bytes >= 0.01 * sum) parts.push_back(fmt::format("{} for {}", bytes_text(need.bytes), need.what));
    return {fmt::format("it takes at least {} of memory, and {} can be had here: {}", bytes_text(sum), bytes_text(there),
                        join(parts, ", ")),
            needs.front().key};
}

}  // namespace palimpsest::train
