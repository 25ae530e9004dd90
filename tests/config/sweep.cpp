#include "errors.h"
#include "fake_catalog.h"

#include <set>

#include "catch.h"

using namespace palimpsest;
using fake::small;

namespace {

std::string varied(const PlannedRun& run) {
    std::string text;
    for (const auto& [key, value] : run.varied) text += (text.empty() ? "" : " ") + key + "=" + value;
    return text;
}

std::string sweep_error(const std::string& sweep) {
    return first_line(error_of([&] { fake::parse(small + "sweep: " + sweep + "\n"); }));
}

}  // namespace

TEST_CASE("a grid expands in the file's order, the last key fastest, seeds innermost", "[sweep]") {
    const Experiment experiment =
        fake::parse(small + "seed: 5\nsweep:\n  grid: {model.mixer: [softmax, delta], train.lr: [1e-3, 3e-5]}\n  seeds: 2\n");
    CHECK(experiment.is_sweep);
    CHECK(experiment.notes.empty());
    std::vector<std::string> all;
    std::set<std::string> ids;
    for (const PlannedRun& run : experiment.runs) {
        all.push_back(varied(run));
        ids.insert(run.spec.id);
        CHECK(run.spec.resolved.find("sweep") == nullptr);
    }
    CHECK(all == std::vector<std::string>{"model.mixer=softmax train.lr=0.001 seed=5", "model.mixer=softmax train.lr=0.001 seed=6",
                                          "model.mixer=softmax train.lr=3.0e-05 seed=5",
                                          "model.mixer=softmax train.lr=3.0e-05 seed=6", "model.mixer=delta train.lr=0.001 seed=5",
                                          "model.mixer=delta train.lr=0.001 seed=6", "model.mixer=delta train.lr=3.0e-05 seed=5",
                                          "model.mixer=delta train.lr=3.0e-05 seed=6"});
    CHECK(ids.size() == 8);
    CHECK(experiment.runs[3].spec.seed == 6);
    CHECK(experiment.runs[3].spec.train.lr == 3e-5);
    CHECK(experiment.runs[3].spec.model.mixer == "softmax");
    CHECK(experiment.runs[4].spec.mixers.count("delta") == 1);
    CHECK_THAT(experiment.explain, ContainsSubstring("lr: 0.001"));
}

TEST_CASE("a run of a sweep is the run alone", "[sweep]") {
    const Experiment sweep = fake::parse(small + "sweep: {grid: {train.lr: [1e-3, 1e-2]}, seeds: 2}\n");
    const RunSpec alone = fake::run(small, {"train.lr=1e-2", "seed=2"});
    CHECK(sweep.runs[3].spec.id == alone.id);
    CHECK(sweep.runs[3].spec.resolved.same_content(alone.resolved));
    CHECK(fake::run(emit_yaml(sweep.runs[3].spec.resolved)).id == alone.id);
    CHECK(sweep.runs[0].spec.id == fake::run(small).id);
}

TEST_CASE("one point is set, the others keep theirs", "[sweep]") {
    const Experiment sweep = fake::parse(small + "sweep: {grid: {task.test.0.pairs: [1, 2, 3]}}\n");
    for (std::size_t i = 0; i < 3; ++i) {
        const TaskSpec& task = sweep.runs[i].spec.task;
        CHECK(static_cast<const fake::Recall*>(task.test[0].options.get())->pairs == static_cast<std::int64_t>(i) + 1);
        CHECK(static_cast<const fake::Recall*>(task.test[1].options.get())->pairs == 8);
    }
}

TEST_CASE("seeds alone are a sweep; a sweep of nothing is one run", "[sweep]") {
    const Experiment seeds = fake::parse(small + "sweep: {seeds: 3}\n");
    REQUIRE(seeds.runs.size() == 3);
    CHECK(varied(seeds.runs[2]) == "seed=3");
    CHECK(fake::parse(small + "sweep: {seeds: 1}\n").runs[0].varied.empty());
    CHECK(fake::parse(small + "sweep: {grid: {seed: [4, 9]}}\n").runs[1].spec.seed == 9);
}

TEST_CASE("whole sections can be swept", "[sweep]") {
    const Experiment tasks = fake::parse(
        "sweep:\n  grid:\n    task:\n      - {name: recall, train: [{}], test: [{}]}\n      - {name: update, train: [{}], test: "
        "[{overwrites: 2}]}\n"
        "    model.layers: [[conv, delta], [delta]]\n");
    REQUIRE(tasks.runs.size() == 4);
    CHECK(varied(tasks.runs[0]) == "task=recall model.layers=[conv, delta]");
    CHECK(varied(tasks.runs[3]) == "task=update model.layers=[delta]");
    CHECK(tasks.runs[3].spec.task.name == "update");
    CHECK(tasks.runs[3].spec.model.depth == 1);
    const Experiment tests = fake::parse(small + "sweep: {grid: {task.test: [[{pairs: 1}], [{pairs: 2}]]}}\n");
    CHECK(varied(tests.runs[1]) == "task.test=[{length: 64, pairs: 2, examples: 1000}]");
}

TEST_CASE("points that are the same run are merged, and it is said", "[sweep]") {
    const Experiment experiment =
        fake::parse(small + "sweep: {grid: {model.mixer: [softmax, delta], mixers.delta.heads: [1, 2, 4]}, seeds: 2}\n");
    CHECK(experiment.runs.size() == 8);
    REQUIRE(experiment.notes.size() == 1);
    CHECK(experiment.notes[0] ==
          "4 of 12 runs repeat another and were merged; e.g. model.mixer=softmax mixers.delta.heads=2 seed=1 is "
          "model.mixer=softmax "
          "mixers.delta.heads=1 seed=1");
}

TEST_CASE("swept values are typed and validated at their places", "[sweep]") {
    CHECK(error_of([&] {
              fake::parse(
                  small +
                  "sweep:\n  grid:\n    train.lr: [1e-3, fast]\n    model.widht: [8, 16]\n    model.mixer: [delta, dleta]\n");
          }) ==
          "dir/f.yaml:7:22: error: 'train.lr' expects a number, got 'fast'\n"
          "  7 |     train.lr: [1e-3, fast]\n"
          "    |                      ^~~~\n"
          "dir/f.yaml:8:11: error: unknown key 'widht' in 'model'; did you mean 'width'?\n"
          "  8 |     model.widht: [8, 16]\n"
          "    |           ^~~~~\n"
          "dir/f.yaml:9:26: error: unknown mixer 'dleta'; did you mean 'delta'?\n"
          "  9 |     model.mixer: [delta, dleta]\n"
          "    |                          ^~~~~\n"
          "3 errors");
    CHECK(sweep_error("{grid: {train.lr: [1e-3], task.test.5.pairs: [1]}}") ==
          "dir/f.yaml:5:44: 'task.test' is a list and has no entry '5'; its indices are 0 to 1");
}

TEST_CASE("what a sweep block may say", "[sweep]") {
    const std::string known = "known keys: grid, zip, random, exclude, seeds, cap, lanes";
    CHECK(sweep_error("[a]") == "dir/f.yaml:5:8: 'sweep' expects a map; " + known);
    CHECK(sweep_error("{method: {}}") == "dir/f.yaml:5:9: unknown key 'method' in 'sweep'; " + known);
    CHECK(sweep_error("{seed: 3}") == "dir/f.yaml:5:9: unknown key 'seed' in 'sweep'; did you mean 'seeds'?");
    CHECK(sweep_error("{seeds: 0}") == "dir/f.yaml:5:16: 'sweep.seeds' must be at least 1, got 0");
    CHECK(sweep_error("{grid: 3}") ==
          "dir/f.yaml:5:15: 'sweep.grid' expects a map from keys to lists of values, such as {train.lr: [1e-3, 3e-3]}");
    CHECK(sweep_error("{grid: {train.lr: 3}}") == "dir/f.yaml:5:26: 'sweep.grid.train.lr' expects a list of values");
    CHECK(sweep_error("{grid: {train.lr: []}}") == "dir/f.yaml:5:26: 'sweep.grid.train.lr' has no values");
    CHECK(sweep_error("{grid: {name: [a, b]}}") == "dir/f.yaml:5:16: 'name' cannot be swept");
    CHECK(sweep_error("{grid: {seed: [1, 2]}, seeds: 2}") ==
          "dir/f.yaml:5:38: give either 'sweep.seeds' or 'seed' in 'sweep.grid'");
    CHECK(sweep_error("{grid: {model.width: [8], model: [{depth: 1}]}}") ==
          "dir/f.yaml:5:34: 'model' would overwrite 'model.width', which is swept too; write it first");
    CHECK(sweep_error("{seeds: 10001}") == "dir/f.yaml:5:8: more than 10000 runs");
    CHECK(sweep_error("{seeds: 10000}").empty());
    CHECK(sweep_error("{grid: {train.lr: [1, 2, 3], train.beta1: [0.1, 0.2]}, seeds: 5000}") ==
          "dir/f.yaml:5:8: more than 10000 runs");
    CHECK(sweep_error("{cap: 0}") == "dir/f.yaml:5:14: 'sweep.cap' must be at least 1, got 0");
    CHECK(sweep_error("{lanes: all}") == "dir/f.yaml:5:16: 'sweep.lanes' expects auto or an integer of at least 1, got 'all'");
    CHECK(sweep_error("{lanes: 0}") == "dir/f.yaml:5:16: 'sweep.lanes' expects auto or an integer of at least 1, got '0'");
    CHECK(sweep_error("{lanes: [2]}") == "dir/f.yaml:5:16: 'sweep.lanes' expects auto or an integer of at least 1");
}
