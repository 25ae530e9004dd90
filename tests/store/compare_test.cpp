#include "store/compare.h"

#include "many.h"

#include <cmath>
#include <limits>

using namespace palimpsest;
using namespace palimpsest::sample;

namespace {

Words groups(const CompareTable& table) {
    Words out;
    for (const CompareRow& row : table.rows) out.push_back(fmt::format("{}", fmt::join(row.group, " ")));
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

TEST_CASE("an unknown name in a comparison is answered with what there is") {
    const std::vector<CollectedRun> runs = grid();
    CHECK(error_of([&] { compare(runs, {"model.mixr"}, {"test_accuracy"}); }) ==
          "no run has the config key 'model.mixr'; did you mean 'model.mixer'?");
    CHECK(error_of([&] { compare(runs, {"seed"}, {"speed"}); }) ==
          "no run has the summary value 'speed'. There are: test_accuracy, valid_accuracy");
    CHECK(error_of([&] {
              best_over(runs, {}, {"train.rl"});
          }).rfind("no run has the config key 'train.rl'; did you mean 'train.lr'?", 0) == 0);
    CompareTable table = compare(runs, {"model.mixer"}, {"test_accuracy"});
    CHECK(error_of([&] { sort_rows(table, "-test_acuracy"); }) ==
          "the table has no column 'test_acuracy'; did you mean 'test_accuracy'? There are: model.mixer, test_accuracy");
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
    const std::vector<CollectedRun> tie = {run("delta", 1e-3, 1, scores(0.5, 0.1)), run("delta", 3e-3, 1, scores(1, 0.2)),
                                           run("delta", 1e-2, 1, scores(1, 0.3)), run("delta", 3e-2, 1, scores(0.5, 0.4))};
    const Best first = best_over(tie, {"model.mixer"}, {"train.lr"});
    CHECK(ids(first.runs) == Words{"delta-0.003-1"});
    CHECK(first.notes == Words{"delta: train.lr 0.003 and 0.01 tie at 1.0000; the first is shown"});

    const Best missing =
        best_over({run("delta", 1e-3, 1, scores(0.5, 0)), run("delta", 3e-3, 1, {}), run("delta", 3e-3, 2, scores(0.6, 0)),
                   run("delta", 1e-2, 1, scores(not_a_number, 0)), run("linear", 1e-3, 1, {}), run("linear", 3e-3, 1, {})},
                  {"model.mixer"}, {"train.lr"});
    CHECK(missing.notes == Words{"delta: train.lr 0.003 was judged by 1 of its 2 runs",
                                 "linear: no run has a valid_accuracy yet: nothing was chosen"});
    CHECK(ids(missing.runs) == Words{"delta-0.003-1", "delta-0.003-2", "linear-0.001-1"});

    const Best everything = best_over(grid(), {}, {"model.mixer", "train.lr"});
    CHECK(ids(everything.runs) == Words{"delta-0.003-1", "delta-0.003-2"});
    CHECK(everything.candidates == std::vector<std::size_t>{5});
    CHECK(everything.notes.empty());
    const Best one = best_over(grid(), {"train.lr"}, {"model.width"});  // a single value has no end
    CHECK(one.notes == Words{"0.003: model.width 64 was judged by 3 of its 4 runs"});
}

namespace {

// Two test segments: length 64 with no and one overwrite, length 128; and a valid one. Two classes; the policy answers half of
// them.
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
    return compare(runs, {"model.mixer"}, counted).rows.at(0).mean;
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
    // What a column pools is told: both lengths have questions at a distance of 1 to 8, and both ask about keys that did not
    // change.
    CHECK(segments.pooled.empty());
    CHECK(profile(runs, Along::overwrites, "test_accuracy").pooled == Words{"length=128", "length=64"});
    CHECK(profile(runs, Along::distance, "test_accuracy").pooled == Words{"length=128", "length=64"});
    CHECK(profile(runs, Along::overwrites, "valid_accuracy").pooled.empty());
    const CompareTable table = compare(runs, {"model.mixer"}, segments);
    CHECK(table.rows[1].failed == 1);
    CHECK(std::isnan(table.rows[1].mean[0]));
    CHECK(error_of([&] { profile(runs, Along::segments, "test_stale"); }) ==
          "'test_stale' is not counted by question; did you mean 'test_stale_rate'? There are: test_accuracy, valid_accuracy, "
          "best_policy_accuracy, "
          "test_correct_rate, test_stale_rate, valid_correct_rate, valid_stale_rate");
}

TEST_CASE("an answer can be stale where a key was overwritten before the test asks") {
    CollectedRun run = answered("delta", 6);
    CHECK(may_be_stale(run.record));
    run.record.slices[2].overwrites = 0;
    CHECK_FALSE(may_be_stale(run.record));
}

TEST_CASE("sizes of the summary are an axis too") {
    std::vector<CollectedRun> runs = grid();
    for (CollectedRun& run : runs)
        if (!run.record.summary.empty())
            run.record.summary["state_bytes"] = run.record.config[0].second == Attribute("delta") ? 8192 : 65536;
    const CompareTable table = compare(runs, {"state_bytes"}, {"test_accuracy"});
    CHECK(groups(table) == Words{"65536", "", "8192"});
    CHECK(table.rows[0].values[0] == Attribute(std::int64_t{65536}));
    CHECK(table.rows[0].measured[0] == 3);
    CHECK_FALSE(table.rows[1].values[0].has_value());
    CHECK(filter(runs, "state_bytes=8192").size() == 4);
    CHECK(error_of([&] {
              best_over(runs, {}, {"state_bytes"});
          }).rfind("no run has the config key 'state_bytes'. There are: ", 0) == 0);
}

TEST_CASE("luck is not chosen") {
    const std::vector<CollectedRun> runs = grid();
    CHECK(error_of([&] { best_over(runs, {"model.mixer"}, {"seed"}); }) ==
          "--best-over seed would pick luck: a seed is no setting. The mean over seeds is taken by itself");
    std::vector<CollectedRun> threads = runs;
    for (std::size_t i = 0; i < threads.size(); ++i)
        threads[i].record.config.emplace_back("run.threads", static_cast<std::int64_t>(i));
    CHECK(error_of([&] { best_over(threads, {"model.mixer"}, {"run.threads"}); }) ==
          "--best-over run.threads would pick luck: run.threads makes no other run");
}

TEST_CASE("the best is chosen among answers to the same questions") {
    const auto of_task = [](const std::string& task, double lr, std::int64_t data_seed) {
        CollectedRun out = run("delta", lr, 1, scores(lr, lr));
        out.record.config.insert(out.record.config.end(), {{"task.name", task},
                                                           {"task.length", std::int64_t{64}},
                                                           {"task.train.0.examples", std::int64_t{100}},
                                                           {"task.valid", std::string("[]")},
                                                           {"task.test.0.examples", std::int64_t{50}},
                                                           {"data.seed", data_seed}});
        return out;
    };
    const std::vector<CollectedRun> crossed = {of_task("mqar", 1e-3, 0), of_task("mqar", 3e-3, 0), of_task("overwrite", 1e-3, 0),
                                               of_task("overwrite", 3e-3, 0)};
    CHECK(ids(best_over(crossed, {}, {"train.lr"}).runs) == Words{"delta-0.003-1", "delta-0.003-1"});
    const std::vector<CollectedRun> apart = {of_task("mqar", 1e-3, 0), of_task("overwrite", 3e-3, 0)};
    CHECK(
        error_of([&] { best_over(apart, {"model.mixer"}, {"train.lr"}); }) ==
        "delta: the values of train.lr were tried on different questions (task.name differs), so their accuracies do not compare; "
        "--by or --where takes them apart");
    CHECK(ids(best_over(apart, {"task.name"}, {"train.lr"}).runs) == Words{"delta-0.001-1", "delta-0.003-1"});
    const std::vector<CollectedRun> seeds = {of_task("mqar", 1e-3, 0), of_task("mqar", 1e-3, 1)};
    CHECK(error_of([&] { best_over(seeds, {}, {"data.seed"}); }) ==
          "the values of data.seed were tried on different questions (data.seed differs), so their accuracies do not compare; "
          "--by or --where takes them apart");
    std::vector<CollectedRun> longer = {of_task("mqar", 1e-3, 0), of_task("mqar", 3e-3, 0)};
    longer[1].record.config.emplace_back("task.test.0.length", std::int64_t{128});
    CHECK(error_of([&] { best_over(longer, {}, {"train.lr"}); }) ==
          "the values of train.lr were tried on different questions (task.length of segment 0 differs), so their accuracies do not "
          "compare; "
          "--by or --where takes them apart");
    // Other training examples are a setting like others.
    longer[1].record.config.back() = {"task.train.0.length", std::int64_t{128}};
    CHECK(best_over(longer, {}, {"train.lr"}).notes == Words{"best train.lr 0.003 is the largest tried"});
    // Unless the valid questions are drawn from them; then those of the test do not matter, nor does how many examples there are.
    for (CollectedRun& run : longer)
        run.record.config[run.record.config.size() - (&run == &longer[1] ? 4 : 3)].second = std::string("train");
    CHECK(error_of([&] { best_over(longer, {}, {"train.lr"}); }) ==
          "the values of train.lr were tried on different questions (task.length of segment 0 differs), so their accuracies do not "
          "compare; "
          "--by or --where takes them apart");
    longer[1].record.config.back() = {"task.test.0.length", std::int64_t{128}};
    longer[1].record.config.emplace_back("task.train.0.examples", std::int64_t{200});
    CHECK(best_over(longer, {}, {"train.lr"}).runs.size() == 1);
    longer[1].record.config.pop_back();
    longer[1].record.config.back() = {"task.train.0.length", std::int64_t{128}};
    for (CollectedRun& run : longer)
        run.record.config[run.record.config.size() - (&run == &longer[1] ? 4 : 3)].second = std::string("[]");
    for (CollectedRun& run : longer)
        run.record.config.emplace_back("train.batch",
                                       static_cast<std::int64_t>(1e4 * std::get<double>(run.record.config[2].second)));
    CHECK(best_over(longer, {}, {"train.lr"}).notes ==
          Words{"best train.lr 0.003 is the largest tried", "the candidates differ in train.batch too"});
}

TEST_CASE("the segment of a slice") {
    CHECK(segment_label({1, 0, 2, 5, 8, "test length=64 pairs=4 overwrites=2 distance=5..8"}) == "length=64 pairs=4");
    CHECK(segment_label({1, 0, 2, 5, 8, "test overwrites=2 overwrites=2 distance=5..8"}) == "overwrites=2");
    CHECK(segment_label({1, 0, 0, 0, 0, "odd"}) == "odd");
}
