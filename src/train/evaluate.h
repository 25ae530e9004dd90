// Asks all lanes the valid and test questions, has the task judge every answer, and counts by slice: segment x overwrites x
// distance. The questions come from data.seed alone, so that all runs of a sweep answer the same ones.
#pragma once

#include "config/spec.h"
#include "model/model.h"
#include "store/run_record.h"
#include "train/data.h"
#include "train/eval_result.h"

#include <cstdint>
#include <vector>

namespace palimpsest::train {

class Evaluator {
public:
    // `batch`: examples of one forward pass; the counts do not depend on it.
    Evaluator(const Segments& segments, const EvalSpec& eval, std::uint64_t data_seed, std::int64_t batch, at::Device device,
              int threads);

    // The slices that hold at least one question, by split, segment, overwrites, distance.
    const std::vector<Slice>& slices() const { return slices_; }
    std::vector<EvalResult> evaluate(Model& model, std::int64_t step) const;  // one per lane
    // [policy, S, C] of the task's shallow policies, -1 in segments where a policy is no shortcut; empty where eval.policies is
    // false.
    std::vector<std::int64_t> policy_answers() const;
    // Accuracy of a split (0 valid, 1 test) from the counts [S, C], by eval.mean.
    double accuracy(const std::vector<std::int64_t>& answers, std::int64_t split) const;

private:
    struct Quiz {  // one segment of one split
        std::int64_t split, segment;
        Stream stream;
        std::shared_ptr<const Program> program;
        std::int64_t examples;
        std::vector<std::int32_t> slice_of;  // [examples, Q]
    };
    void add_quiz(std::int64_t split, std::int64_t index, const Segment& segment);
    void count(const Quiz& quiz, std::span<const std::uint64_t> examples, const std::int64_t* predicted,
               std::vector<std::int64_t>& answers) const;

    EvalSpec eval_;
    std::uint64_t seed_;
    std::int64_t batch_;
    at::Device device_;
    int threads_;
    std::vector<Policy> shallow_;
    std::vector<Quiz> quizzes_;
    std::vector<Slice> slices_;
};

}  // namespace palimpsest::train
