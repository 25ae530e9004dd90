// Counts, losses, slices and policies of an evaluation.
#include "train/evaluate.h"

#include "support.h"

#include <cmath>
#include <map>
#include <numeric>

using namespace palimpsest;
using namespace palimpsest::testing;

namespace {

RunSpec overwrite_run() {
    RunSpec spec = small_run();
    spec.task.name = "overwrite";
    const std::string small = "{length: 32, pairs: 2, overwrites: 0..2, vocabulary: 32}",
                      large = "{length: 48, pairs: 4, overwrites: 1, vocabulary: 32}";
    spec.task.train = {segment("overwrite", small, 100)};
    spec.task.valid = {segment("overwrite", small, 30)};
    spec.task.test = {segment("overwrite", small, 50), segment("overwrite", large, 10)};
    return spec;
}

struct Bench {
    explicit Bench(const RunSpec& spec)
        : segments(train::compile_segments(spec.task)),
          model(spec, {segments.vocabulary, segments.longest}, {{1, 1}, {2, 20}}, at::kCPU) {}
    train::Evaluator evaluator(const EvalSpec& eval, std::int64_t batch) const { return {segments, eval, 0, batch, at::kCPU, 1}; }
    train::Segments segments;
    Model model;
};

std::int64_t total(const std::vector<std::int64_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

}  // namespace

TEST_CASE("every question is counted once, in the slice it belongs to", "[train][evaluate]") {
    Bench bench(overwrite_run());
    const train::Evaluator evaluator = bench.evaluator(EvalSpec{}, 8);
    const std::vector<Slice>& slices = evaluator.slices();
    const std::vector<EvalResult> results = evaluator.evaluate(bench.model, 7);
    REQUIRE(results.size() == 2);

    std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> by_segment;
    std::map<std::int64_t, std::int64_t> first_test_by_overwrites;
    for (std::size_t s = 0; s < slices.size(); ++s) {
        std::int64_t count = 0;
        for (std::size_t c = 0; c < answer_classes; ++c) count += results[0].answers[s * answer_classes + c];
        CHECK(count > 0);
        CHECK(results[0].loss_sum[s] > 0);
        CHECK(slices[s].distance_from <= slices[s].distance_to);
        by_segment[{slices[s].split, slices[s].segment}] += count;
        if (slices[s].split == 1 && slices[s].segment == 0) first_test_by_overwrites[slices[s].overwrites] += count;
    }
    const auto queries = [](const train::Segment& segment) { return segment.program->shape().queries * segment.examples; };
    CHECK(by_segment == std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t>{{{0, 0}, queries(bench.segments.valid[0])},
                                                                                      {{1, 0}, queries(bench.segments.test[0])},
                                                                                      {{1, 1}, queries(bench.segments.test[1])}});
    CHECK(first_test_by_overwrites.size() > 1);
    CHECK(results[0].step == 7);
    CHECK(total(results[1].answers) == total(results[0].answers));
    CHECK(results[0].answers != results[1].answers);
    CHECK(slices[0].label ==
          fmt::format("valid {{length: 32, pairs: 2, overwrites: 0..2, vocabulary: 32}} overwrites=0 distance={}..{}",
                      slices[0].distance_from, slices[0].distance_to));
    // Losses of a new model are near log V a question.
    CHECK(std::accumulate(results[0].loss_sum.begin(), results[0].loss_sum.end(), 0.0) /
              static_cast<double>(total(results[0].answers)) ==
          Approx(std::log(32.0)).epsilon(0.05));
}

TEST_CASE("an evaluation does not depend on its batch", "[train][evaluate]") {
    Bench bench(overwrite_run());
    const std::vector<EvalResult> one = bench.evaluator(EvalSpec{}, 7).evaluate(bench.model, 1),
                                  other = bench.evaluator(EvalSpec{}, 64).evaluate(bench.model, 1);
    for (std::size_t r = 0; r < 2; ++r) {
        CHECK(one[r].answers == other[r].answers);
        for (std::size_t s = 0; s < one[r].loss_sum.size(); ++s)
            CHECK(one[r].loss_sum[s] == Approx(other[r].loss_sum[s]).epsilon(1e-5));
        CHECK(one[r].valid_accuracy == other[r].valid_accuracy);
    }
}

TEST_CASE("accuracy is over all answers, or over segments as zoology has it", "[train][evaluate]") {
    Bench bench(overwrite_run());
    EvalSpec by_answers, by_examples;
    by_examples.mean = AccuracyMean::examples;
    const train::Evaluator plain = bench.evaluator(by_answers, 16), zoology = bench.evaluator(by_examples, 16);
    // All of the first test segment right, all of the second wrong.
    std::vector<std::int64_t> answers(plain.slices().size() * answer_classes, 0);
    for (std::size_t s = 0; s < plain.slices().size(); ++s) {
        const Slice& slice = plain.slices()[s];
        const auto verdict = slice.split == 1 && slice.segment == 0 ? Answer::correct : Answer::stale;
        answers[s * answer_classes + static_cast<std::size_t>(verdict)] = slice.segment == 0 ? 30 : 70;
    }
    std::int64_t right = 0, all = 0;
    for (std::size_t s = 0; s < plain.slices().size(); ++s) {
        if (plain.slices()[s].split != 1) continue;
        all += plain.slices()[s].segment == 0 ? 30 : 70;
        right += plain.slices()[s].segment == 0 ? 30 : 0;
    }
    CHECK(plain.accuracy(answers, 1) == Approx(static_cast<double>(right) / static_cast<double>(all)));
    CHECK(zoology.accuracy(answers, 1) == 0.5);
    CHECK(plain.accuracy(answers, 0) == 0);
}

TEST_CASE("where nothing is rewritten, policies that look up the key are not scored", "[train][evaluate]") {
    RunSpec spec = overwrite_run();
    spec.task.test = {segment("overwrite", "{length: 32, pairs: 2, overwrites: 0, vocabulary: 32}", 20),
                      segment("overwrite", "{length: 32, pairs: 2, overwrites: 1, vocabulary: 32}", 20)};
    Bench bench(spec);
    const train::Evaluator evaluator = bench.evaluator(EvalSpec{}, 8);
    const std::vector<std::int64_t> counts = evaluator.policy_answers();
    const std::size_t row = evaluator.slices().size() * answer_classes;
    for (std::size_t p = 0; p < policies; ++p) {
        const bool looks_up =
            p == static_cast<std::size_t>(Policy::first_of_key) || p == static_cast<std::size_t>(Policy::random_of_key);
        for (std::size_t s = 0; s < evaluator.slices().size(); ++s) {
            const bool scored = evaluator.slices()[s].split == 0 || evaluator.slices()[s].segment == 1 || !looks_up;
            for (std::size_t c = 0; c < answer_classes; ++c) CHECK((counts[p * row + s * answer_classes + c] >= 0) == scored);
        }
    }
}

TEST_CASE("policies answer the same questions", "[train][evaluate]") {
    Bench bench(overwrite_run());
    EvalSpec eval;
    const train::Evaluator evaluator = bench.evaluator(eval, 8);
    const std::vector<std::int64_t> counts = evaluator.policy_answers();
    const std::size_t row = evaluator.slices().size() * answer_classes;
    REQUIRE(counts.size() == policies * row);
    const std::int64_t questions = total(evaluator.evaluate(bench.model, 1)[0].answers);
    for (std::size_t p = 0; p < policies; ++p)
        CHECK(total({counts.begin() + static_cast<std::ptrdiff_t>(p * row),
                     counts.begin() + static_cast<std::ptrdiff_t>((p + 1) * row)}) == questions);
    // The first value of a key is right exactly where it was never changed.
    const std::size_t first = static_cast<std::size_t>(Policy::first_of_key) * row;
    for (std::size_t s = 0; s < evaluator.slices().size(); ++s) {
        const std::int64_t correct = counts[first + s * answer_classes + static_cast<std::size_t>(Answer::correct)];
        if (evaluator.slices()[s].overwrites == 0) CHECK(correct > 0);
        else CHECK(counts[first + s * answer_classes + static_cast<std::size_t>(Answer::stale)] > 0);
    }
    CHECK(counts == bench.evaluator(eval, 64).policy_answers());
    eval.policies = false;
    CHECK(bench.evaluator(eval, 8).policy_answers().empty());
}
