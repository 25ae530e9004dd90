// No training example is a valid or test example, and no valid example a test example.
#include "train/overlap.h"

#include "support.h"

using namespace palimpsest;
using namespace palimpsest::testing;

namespace {

// One key and two values: there are two examples.
const std::string tiny = "{length: 4, pairs: 1, vocabulary: 4}", other_length = "{length: 5, pairs: 1, vocabulary: 4}";
const std::string advice =
    " The task has too few different examples to keep them apart: give it a larger vocabulary, more pairs or a greater length, or "
    "allow it "
    "with data.check_overlap: false";

std::string problem(const RunSpec& spec, int threads = 1) {
    return train::overlap_problem(spec, train::compile_segments(spec.task), threads);
}

}  // namespace

TEST_CASE("training examples that are held-out examples are found", "[train][overlap]") {
    RunSpec spec = small_run();
    CHECK(problem(spec).empty());
    spec.task.train = {segment("mqar", tiny, 100)};
    spec.task.valid = {segment("mqar", other_length, 20)};
    spec.task.test = {segment("mqar", tiny, 20)};
    CHECK(problem(spec) == "96 of the first 96 training examples of task 'mqar' are valid or test examples too." + advice);
    std::swap(spec.task.valid, spec.task.test);
    CHECK(problem(spec) == "96 of the first 96 training examples of task 'mqar' are valid or test examples too." + advice);
    spec.data.check_overlap = false;
    CHECK(problem(spec).empty());
}

TEST_CASE("valid examples that are test examples are found", "[train][overlap]") {
    RunSpec spec = small_run();
    spec.task.train = {segment("mqar", other_length, 100)};
    spec.task.test = {segment("mqar", tiny, 20)};  // and valid, the same questions on another stream
    CHECK(problem(spec) == "20 of the 20 valid examples of task 'mqar' are test examples too." + advice);
    spec.task.valid = {segment("mqar", "{length: 6, pairs: 1, vocabulary: 4}", 20)};
    CHECK(problem(spec).empty());
}

TEST_CASE("fixed data are searched to their end, fresh data as far as said", "[train][overlap]") {
    // The second segment alone holds test examples, and comes after 200,000 others.
    RunSpec spec = small_run();
    spec.task.train = {segment("mqar", "{length: 8, pairs: 1, vocabulary: 4}", 240'000), segment("mqar", tiny, 8)};
    spec.task.valid = {segment("mqar", "{length: 6, pairs: 1, vocabulary: 4}", 1)};
    spec.task.test = {segment("mqar", tiny, 20)};
    spec.data.segments = SegmentOrder::in_order;
    spec.train.batch = 100;
    spec.train.steps = 10'000;
    CHECK(problem(spec).empty());
    spec.data.mode = DataMode::fixed;
    CHECK(problem(spec) == "8 of the first 240008 training examples of task 'mqar' are valid or test examples too." + advice);
    spec.train.steps = 2'400;  // the run ends before
    CHECK(problem(spec).empty());
}

TEST_CASE("of more than can be searched while somebody waits, each segment has its share", "[train][overlap]") {
    // 40 million tokens, and behind them the segment that holds test examples; among 16 million held-out tokens, the last segment
    // does.
    RunSpec spec = small_run();
    spec.task.train = {segment("mqar", "{length: 8, pairs: 1, vocabulary: 4}", 5'000'000), segment("mqar", tiny, 8)};
    spec.task.valid = {segment("mqar", "{length: 6, pairs: 1, vocabulary: 4}", 1)};
    spec.task.test = {segment("mqar", "{length: 16, pairs: 1, vocabulary: 4}", 1'000'000), segment("mqar", tiny, 20)};
    spec.data.segments = SegmentOrder::in_order;
    spec.data.mode = DataMode::fixed;
    spec.train.batch = 100;
    spec.train.steps = 60'000;
    CHECK(problem(spec) == "8 of the first 1875008 training examples of task 'mqar' are valid or test examples too." + advice);
}

TEST_CASE("each seed has its own training examples, and every thread count the same finding", "[train][overlap]") {
    RunSpec spec = small_run();
    const std::string few = "{length: 8, pairs: 1, vocabulary: 64}";  // 31 keys, 32 values
    spec.task.train = {segment("mqar", few, 100)};
    spec.task.valid = {segment("mqar", "{length: 5, pairs: 1, vocabulary: 64}", 1)};
    spec.task.test = {segment("mqar", few, 24)};
    spec.train.steps = 8;
    spec.train.batch = 8;
    bool clean = false, bad = false;
    for (spec.seed = 1; spec.seed <= 12; ++spec.seed) {
        const std::string found = problem(spec);
        CHECK(problem(spec, 3) == found);
        (found.empty() ? clean : bad) = true;
    }
    CHECK((clean && bad));
}
