#include "store/compare.h"

#include "core/error.h"

#include <cmath>
#include <limits>

#include "catch.h"

using namespace palimpsest;

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
using Words = std::vector<std::string>;

// A run as its file would have it; no summary: it has not come to its end.
CollectedRun run(const std::string& mixer, double lr, std::int64_t seed, std::map<std::string, double> summary) {
    CollectedRun out;
    out.run = {fmt::format("{}-{}-{}", mixer, lr, seed), "", {{"model.mixer", mixer}, {"train.lr", fmt::format("{}", lr)}, {"seed", std::to_string(seed)}}};
    out.state = summary.empty() ? RunState::running : RunState::finished;
    out.present = true;
    out.record.run_id = out.run.run_id;
    out.record.config = {{"model.mixer", mixer}, {"model.width", std::int64_t{64}}, {"train.lr", lr}, {"seed", seed}};
    if (mixer == "delta") out.record.config.emplace_back("mixers.delta.heads", std::int64_t{2});
    out.record.summary = std::move(summary);
    return out;
}

std::map<std::string, double> scores(double valid, double test) { return {{"valid_accuracy", valid}, {"test_accuracy", test}}; }

// delta is best at 0.003 on the valid questions, and at 0.01 on the test questions.
std::vector<CollectedRun> grid() {
    return {run("softmax", 1e-3, 1, scores(0.5, 0.5)), run("softmax", 1e-3, 2, scores(0.7, 0.7)), run("softmax", 3e-3, 1, scores(0.4, 0.4)),
            run("softmax", 3e-3, 2, {}),               run("delta", 1e-3, 1, scores(0.6, 0.6)),   run("delta", 3e-3, 1, scores(0.9, 0.8)),
            run("delta", 3e-3, 2, scores(0.7, 0.6)),   run("delta", 1e-2, 1, scores(0.7, 0.95))};
}

template <class Action>
std::string error_of(const Action& action) {
    try {
        action();
    } catch (const Error& error) {
        CHECK(error.code() == ExitCode::usage);
        return error.what();
    }
    return "no error";
}

Words groups(const CompareTable& table) {
    Words out;
    for (const CompareRow& row : table.rows) out.push_back(fmt::format("{}", fmt::join(row.group, " ")));
    return out;
}

Words ids(const std::vector<CollectedRun>& runs) {
    Words out;
    for (const CollectedRun& run : runs) out.push_back(run.run.run_id);
    return out;
}

}  // namespace

TEST_CASE("comparison groups runs and gives mean, sample deviation and count") {
    std::vector<CollectedRun> runs = grid();
    runs[1].present = false;  // damaged: what the plan says of it still counts it
    runs[1].record = {};
    const CompareTable table = compare(runs, {"model.mixer"}, {"test_accuracy", "valid_accuracy"});
    CHECK(groups(table) == Words{"softmax", "delta"});
    CHECK(table.rows[0].mean[0] == Approx(0.45));
    CHECK(table.rows[0].deviation[0] == Approx(std::sqrt(0.005)));
    CHECK(table.rows[0].count == 2);
    CHECK(table.rows[0].failed == 2);
    CHECK(table.rows[1].mean[1] == Approx(0.725));
    CHECK(table.rows[1].failed == 0);

    const CompareTable two = compare(runs, {"train.lr", "model.mixer"}, {"test_accuracy"});
    CHECK(groups(two) == Words{"0.001 softmax", "0.003 softmax", "0.001 delta", "0.003 delta", "0.01 delta"});
    CHECK(std::isnan(two.rows[0].deviation[0]));
    CHECK(two.rows[0].count == 1);
    CHECK(compare(runs, {}, {"test_accuracy"}).rows.size() == 1);
}

TEST_CASE("a value reads alike from the plan and from the record") {
    CollectedRun small = run("delta", 3e-5, 1, scores(1, 1));
    small.run.varied[1].second = "3.0e-05";  // as the manifest writes it
    CHECK(value_of(small, "train.lr") == "3e-05");
    small.record = {};
    CHECK(value_of(small, "train.lr") == "3e-05");
    CHECK(value_of(small, "model.width") == "");
    small.record.config = {{"task.name", std::string("mqar")}};
    CHECK(value_of(small, "task") == "mqar");
}

TEST_CASE("an unknown name in a comparison is answered with what there is") {
    const std::vector<CollectedRun> runs = grid();
    CHECK(error_of([&] { compare(runs, {"model.mixr"}, {"test_accuracy"}); }) ==
          "no run has the config key 'model.mixr'; did you mean 'model.mixer'? There are: mixers.delta.heads, model.mixer, model.width, seed, train.lr");
    CHECK(error_of([&] { compare(runs, {"seed"}, {"speed"}); }) == "no run has the summary value 'speed'. There are: test_accuracy, valid_accuracy");
    CHECK(error_of([&] { best_over(runs, {}, {"train.rl"}); }).rfind("no run has the config key 'train.rl'; did you mean 'train.lr'?", 0) == 0);
    CompareTable table = compare(runs, {"model.mixer"}, {"test_accuracy"});
    CHECK(error_of([&] { sort_rows(table, "-test_acuracy"); }) ==
          "the table has no column 'test_acuracy'; did you mean 'test_accuracy'? There are: model.mixer, test_accuracy");
}

TEST_CASE("keys that differ") {
    std::vector<CollectedRun> runs = grid();
    // The heads follow from the mixer, the width is one, the seed is averaged over.
    CHECK(differing_keys(runs, {"model.mixer", "train.lr", "seed"}) == Words{"model.mixer", "train.lr"});
    CHECK(differing_keys(runs, {}) == Words{"model.mixer", "train.lr"});
    CHECK(differing_keys({runs[4], runs[5]}, {"model.mixer", "train.lr", "seed"}) == Words{"train.lr"});
    // Of another sweep, with another width; the learning rate that was swept comes first.
    runs.push_back(run("delta", 1e-3, 1, {}));
    std::get<std::int64_t>(runs.back().record.config[1].second) = 128;
    CHECK(differing_keys(runs, {"train.lr"}) == Words{"train.lr", "model.mixer", "model.width"});
    // Two heads or four are a difference between runs of one mixer.
    runs.push_back(run("delta", 1e-3, 1, {}));
    std::get<std::int64_t>(runs.back().record.config.back().second) = 4;
    CHECK(differing_keys(runs, {"model.mixer"}) == Words{"model.mixer", "model.width", "train.lr", "mixers.delta.heads"});
    // What only some runs have tells them apart where nothing else does.
    CollectedRun more = run("softmax", 1e-3, 1, {});
    more.record.config.emplace_back("task.test.1.pairs", std::int64_t{4});
    CHECK(differing_keys({runs[0], more}, {}) == Words{"task.test.1.pairs"});
    more.record.config.push_back({"name", std::string("other")});
    more.record.config.push_back({"run.threads", std::int64_t{1}});
    CHECK(differing_keys({runs[0], more}, {}) == Words{"task.test.1.pairs"});
}

TEST_CASE("runs are chosen by key and values") {
    const std::vector<CollectedRun> runs = grid();
    CHECK(filter(runs, "model.mixer=delta").size() == 4);
    CHECK(ids(filter(runs, "train.lr=1e-2,3.0e-3")) == Words{"softmax-0.003-1", "softmax-0.003-2", "delta-0.003-1", "delta-0.003-2", "delta-0.01-1"});
    CHECK(error_of([&] { filter(runs, "model.mixr=delta"); }).rfind("no run has the config key 'model.mixr'; did you mean 'model.mixer'?", 0) == 0);
    CHECK(error_of([&] { filter(runs, "model.mixer=linear"); }) == "no run has model.mixer=linear; its values are: softmax, delta");
    CHECK(error_of([&] { filter(runs, "delta"); }) == "'delta' chooses nothing; write key=value, such as model.mixer=delta");
    CollectedRun layered = runs[0];
    layered.record.config.emplace_back("model.layers", std::string("[base_conv, softmax]"));
    CHECK(filter({runs[0], layered}, "model.layers=[base_conv, softmax]").size() == 1);
    CHECK(filter({runs[0], layered}, "model.layers=delta,[base_conv,softmax]").size() == 1);
}

TEST_CASE("rows are sorted by numbers, words, and what was measured") {
    std::vector<CollectedRun> runs = grid();
    runs.push_back(run("linear", 1e-3, 1, {}));
    CompareTable table = compare(runs, {"model.mixer"}, {"test_accuracy"});
    sort_rows(table, "test_accuracy");
    CHECK(groups(table) == Words{"softmax", "delta", "linear"});
    sort_rows(table, "-test_accuracy");
    CHECK(groups(table) == Words{"delta", "softmax", "linear"});
    sort_rows(table, "-model.mixer");
    CHECK(groups(table) == Words{"softmax", "linear", "delta"});
    runs.push_back(run("linear", 1e2, 1, {}));
    CompareTable by_lr = compare(runs, {"train.lr"}, {"test_accuracy"});
    sort_rows(by_lr, "-train.lr");
    CHECK(groups(by_lr) == Words{"100", "0.01", "0.003", "0.001"});
    CHECK(std::isnan(by_lr.rows[0].mean[0]));
}

TEST_CASE("the best value is chosen on the valid questions, over seeds, and never on the test questions") {
    const Best best = best_over(grid(), {"model.mixer"}, {"train.lr"});
    CHECK(ids(best.runs) == Words{"softmax-0.001-1", "softmax-0.001-2", "delta-0.003-1", "delta-0.003-2"});
    CHECK(best.candidates == std::vector<std::size_t>{2, 3});
    CHECK(best.notes == Words{"softmax: best train.lr 0.001 is the smallest tried"});
    const CompareTable table = compare(best.runs, {"model.mixer", "train.lr"}, {"test_accuracy"});
    CHECK(groups(table) == Words{"softmax 0.001", "delta 0.003"});
    CHECK(table.rows[1].mean[0] == Approx(0.7));
}

TEST_CASE("what one should know of a winner is said") {
    const std::vector<CollectedRun> tie = {run("delta", 1e-3, 1, scores(0.5, 0.1)), run("delta", 3e-3, 1, scores(1, 0.2)), run("delta", 1e-2, 1, scores(1, 0.3)),
                                           run("delta", 3e-2, 1, scores(0.5, 0.4))};
    const Best first = best_over(tie, {"model.mixer"}, {"train.lr"});
    CHECK(ids(first.runs) == Words{"delta-0.003-1"});
    CHECK(first.notes == Words{"delta: train.lr 0.003 and 0.01 tie at 1.0000; the first is shown"});

    const Best missing = best_over({run("delta", 1e-3, 1, scores(0.5, 0)), run("delta", 3e-3, 1, {}), run("delta", 3e-3, 2, scores(0.6, 0)),
                                    run("delta", 1e-2, 1, scores(not_a_number, 0)), run("linear", 1e-3, 1, {}), run("linear", 3e-3, 1, {})},
                                   {"model.mixer"}, {"train.lr"});
    CHECK(missing.notes == Words{"delta: train.lr 0.003 was judged by 1 of its 2 runs", "linear: no run has a valid_accuracy yet: nothing was chosen"});
    CHECK(ids(missing.runs) == Words{"delta-0.003-1", "delta-0.003-2", "linear-0.001-1"});

    const Best everything = best_over(grid(), {}, {"model.mixer", "train.lr"});
    CHECK(ids(everything.runs) == Words{"delta-0.003-1", "delta-0.003-2"});
    CHECK(everything.candidates == std::vector<std::size_t>{5});
    CHECK(everything.notes.empty());
    const Best one = best_over(grid(), {"train.lr"}, {"model.width"});  // a single value has no end
    CHECK(one.notes == Words{"0.003: model.width 64 was judged by 3 of its 4 runs"});
}

namespace {

// Two test segments: length 64 with no and one overwrite, length 128; and a valid one. Two classes; the policy answers half of them.
CollectedRun answered(const std::string& mixer, std::int64_t right) {
    CollectedRun out = run(mixer, 1e-3, 1, scores(1, 1));
    RunRecord& record = out.record;
    record.slices = {{0, 0, 0, 1, 8, "valid length=64 overwrites=0 distance=1..8"},
                     {1, 0, 0, 1, 8, "test length=64 overwrites=0 distance=1..8"},
                     {1, 0, 1, 9, 9, "test length=64 overwrites=1 distance=9..9"},
                     {1, 1, 0, 1, 8, "test length=128 overwrites=0 distance=1..8"}};
    record.answer_classes = {"correct", "stale"};
    record.policy_names = {"a", "b"};
    record.eval_step = {10, 20};
    record.answers = {0, 1, 0, 1, 0, 1, 0, 1, /* the last counts */ 3, 1, 10, 0, right, 10 - right, 5, 5};
    record.policy_answers = {1, 0, 5, 5, 5, 5, 1, 9, 1, 0, 6, 4, 2, 8, 3, 7};
    return out;
}

std::vector<double> row(const std::vector<CollectedRun>& runs, Along along, const std::string& metric) {
    const Profile counted = profile(runs, along, metric);
    return compare(counted.runs, {"model.mixer"}, counted.columns).rows.at(0).mean;
}

}  // namespace

TEST_CASE("answers along the segments, overwrites and distances of the test questions") {
    const std::vector<CollectedRun> runs = {answered("delta", 6), run("softmax", 1e-3, 1, {})};
    const Profile segments = profile(runs, Along::segments, "test_accuracy");
    CHECK(segments.columns == Words{"length=64", "length=128"});
    CHECK(row(runs, Along::segments, "test_accuracy") == std::vector<double>{0.8, 0.5});
    CHECK(row(runs, Along::segments, "test_stale_rate") == std::vector<double>{0.2, 0.5});
    CHECK(profile(runs, Along::overwrites, "test_accuracy").columns == Words{"overwrites=0", "overwrites=1"});
    CHECK(row(runs, Along::overwrites, "test_accuracy") == std::vector<double>{0.75, 0.6});
    CHECK(profile(runs, Along::distance, "test_accuracy").columns == Words{"distance=1..8", "distance=9"});
    CHECK(row(runs, Along::distance, "test_accuracy") == std::vector<double>{0.75, 0.6});
    CHECK(row(runs, Along::segments, "valid_accuracy") == std::vector<double>{0.75});
    // The best policy of each column: a then b.
    CHECK(row(runs, Along::segments, "best_policy_accuracy") == std::vector<double>{0.5, 0.3});
    const CompareTable table = compare(segments.runs, {"model.mixer"}, segments.columns);
    CHECK(table.rows[1].failed == 1);
    CHECK(std::isnan(table.rows[1].mean[0]));
    CHECK(error_of([&] { profile(runs, Along::segments, "test_stale"); }) ==
          "'test_stale' is not counted by question; did you mean 'test_stale_rate'? There are: test_accuracy, valid_accuracy, best_policy_accuracy, "
          "test_correct_rate, test_stale_rate, valid_correct_rate, valid_stale_rate");
}

TEST_CASE("the segment of a slice") {
    CHECK(segment_label({1, 0, 2, 5, 8, "test length=64 pairs=4 overwrites=2 distance=5..8"}) == "length=64 pairs=4");
    CHECK(segment_label({1, 0, 2, 5, 8, "test overwrites=2 overwrites=2 distance=5..8"}) == "overwrites=2");
    CHECK(segment_label({1, 0, 0, 0, 0, "odd"}) == "odd");
}
