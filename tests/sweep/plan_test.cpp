#include "sweep/plan.h"

#include "catch.h"
#include "core/error.h"
#include "core/file.h"
#include "sweep/execute.h"
#include "sweep/inspect.h"
#include "sweep/record.h"
#include "sweep/report.h"
#include "temporary_folder.h"

#include <cmath>

using namespace palimpsest;

namespace {

const std::string config = R"(
name: plans
task: {name: mqar, vocabulary: 32, length: 16, pairs: 2, train: [{examples: 100}], test: [{examples: 20}, {pairs: 4, examples: 20}]}
model: {width: 16, depth: 1}
train: {steps: 10, lr: 1e-3}
)";

Experiment experiment(const std::string& extra = "", const std::vector<std::string>& overrides = {}) {
    return parse_experiment("plans.yaml", config + extra, overrides, registry_catalog(), {});
}

template <class Action>
std::string error_of(const Action& action) {
    try {
        action();
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("folders are named by id and by what varies") {
    const Experiment one = experiment();
    CHECK(human_name(one.runs[0]) == "mqar-softmax");
    CHECK(run_folder("results", one.name, one.runs[0]) == "results/plans/" + one.runs[0].spec.id.substr(0, 8) + "-mqar-softmax");
    CHECK(human_name(experiment("", {"model.layers=[base_conv, softmax]"}).runs[0]) == "mqar-base_conv+softmax");

    const Experiment many = experiment("sweep: {grid: {model.layers: [[base_conv, softmax], [delta, delta]], train.lr: [1e-3, 3e-3]}, seeds: 2}");
    REQUIRE(many.runs.size() == 8);
    CHECK(human_name(many.runs[0]) == "base_conv+softmax-lr=0.001-seed=1");
    CHECK(human_name(many.runs[7]) == "delta-lr=0.003-seed=2");
    CHECK(varied_text(many.runs[7].varied) == "model.layers=[delta, delta] train.lr=0.003 seed=2");
}

TEST_CASE("what is to be done with a run follows from its folder") {
    const TemporaryFolder folder;
    const RunFolder run(folder.path);
    CHECK(decide(run).action == Action::start);
    write_file_atomic(run.file("run.h5"), "x");
    CHECK(decide(run).action == Action::resume);
    CHECK(decide(run).reason == "its process is gone");
    RunFolder(folder.path).write_failed({"interrupted", "stopped by a signal", 400});
    CHECK(decide(run).action == Action::resume);
    CHECK(decide(run).reason == "interrupted at step 400");
    RunFolder(folder.path).write_failed({"non_finite", "step 40, lane 0: the loss is not finite\nmore", 40});
    CHECK(decide(run).action == Action::resume);
    CHECK(decide(run).reason == "failed at step 40: step 40, lane 0: the loss is not finite");
    RunFolder holder(folder.path);
    holder.lock();
    CHECK(decide(run).action == Action::leave);
    CHECK_THAT(decide(run).reason, ContainsSubstring("running: pid "));
    holder.unlock();
    holder.write_done();
    CHECK(decide(run).action == Action::skip);
    CHECK(decide(run).reason == "finished");
}

TEST_CASE("a manifest holds the whole plan and is read back") {
    const TemporaryFolder results;
    const Experiment plan = experiment("sweep: {grid: {task: [{name: mqar, vocabulary: 32, length: 16, train: [{examples: 9}], test: [{pairs: 2}]}, "
                                       "{name: overwrite, vocabulary: 32, length: 16, pairs: 2, train: [{examples: 9}], test: [{}]}], "
                                       "model.mixer: [softmax, delta]}}");
    const std::string folder = sweep_folder(results.path, plan.name);
    CHECK(error_of([&] { read_manifest(folder); }) == "'" + folder + "' is no folder of a sweep: it holds no manifest.yaml");
    const std::string yaml = manifest_yaml(plan, results.path, {"palimpsest", "sweep", "x.yaml"});
    CHECK(freeze_manifest(folder, yaml).empty());
    CHECK(read_file(folder + "/manifest.yaml") == yaml);

    const Manifest manifest = read_manifest(folder);
    CHECK(manifest.name == "plans");
    CHECK(manifest.sweep_id == sweep_id(plan));
    CHECK(manifest.varied == std::vector<std::string>{"task", "model.mixer"});
    REQUIRE(manifest.runs.size() == 4);
    for (std::size_t i = 0; i < 4; ++i) {
        CHECK(manifest.runs[i].run_id == plan.runs[i].spec.id);
        CHECK(manifest.runs[i].folder == run_folder(results.path, plan.name, plan.runs[i]));
        CHECK(manifest.runs[i].varied == plan.runs[i].varied);
    }

    // The changes of each run, laid over the first run's config, give that run's config.
    const Value root = parse_yaml("manifest.yaml", yaml);
    for (std::size_t i = 0; i < 4; ++i) {
        Value config_of_run = *root.find("config");
        for (const Value::Entry& change : root.find("runs")->items[i].find("changes")->entries) {
            Value* place = &config_of_run;
            std::string path = change.key;
            for (std::size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.')) {
                place = place->find(path.substr(0, dot));
                REQUIRE(place != nullptr);
                path.erase(0, dot + 1);
            }
            place->set(path, change.value);
        }
        CHECK(config_of_run.same_content(plan.runs[i].spec.resolved));
    }
}

TEST_CASE("a plan that has changed says how") {
    const TemporaryFolder results;
    const Experiment before = experiment("sweep: {grid: {train.lr: [1e-3, 3e-3]}}"), after = experiment("sweep: {grid: {train.lr: [3e-3, 1e-2]}}");
    const std::string folder = sweep_folder(results.path, before.name);
    CHECK(freeze_manifest(folder, manifest_yaml(before, results.path, {})).empty());
    CHECK(freeze_manifest(folder, manifest_yaml(before, results.path, {})).empty());
    const std::vector<std::string> notes = freeze_manifest(folder, manifest_yaml(after, results.path, {}));
    REQUIRE(notes.size() == 2);
    CHECK(notes[0] == "the plan has changed since last time: 1 run new: " + short_id(after.runs[1].spec.id) + " (train.lr=0.01)");
    CHECK(notes[1] ==
          "the plan has changed since last time: 1 run no longer planned (folders stay): " + short_id(before.runs[0].spec.id) + " (train.lr=0.001)");
    CHECK(sweep_id(before) != sweep_id(after));
}

TEST_CASE("sizes are known before anything starts, and what does not fit is refused") {
    const Experiment plan = experiment("sweep: {grid: {model.mixer: [softmax, delta]}, seeds: 2}");
    const std::vector<RunSize> sizes = inspect_runs(plan.runs);
    REQUIRE(sizes.size() == 4);
    CHECK(sizes[0].parameters == sizes[1].parameters);
    CHECK(sizes[0].parameters != sizes[2].parameters);
    CHECK(sizes[0].state_length == 16);
    CHECK(sizes[0].state_bytes == 2 * 16 * 16 * 4);  // keys and values of 16 positions, width 16, one layer
    CHECK(sizes[0].steps == 10);
    const std::string wrong = error_of([&] { inspect_runs(experiment("sweep: {grid: {task.length: [16, 14, 12], model.mixer: [softmax, delta]}}").runs); });
    CHECK_THAT(wrong, ContainsSubstring("length 14 is too short for 4 pairs and 4 queries: 2 * (pairs + queries) = 16 <= length is needed"));
    CHECK_THAT(wrong, ContainsSubstring("(run task.length=14 model.mixer=softmax)"));
    CHECK_THAT(wrong, ContainsSubstring("(run task.length=12 model.mixer=softmax)"));
    CHECK_THAT(wrong, !ContainsSubstring("model.mixer=delta"));  // the same mistake once
}

TEST_CASE("the resolved config becomes typed attributes") {
    const Attributes flat = flat_config(experiment().runs[0].spec.resolved);
    const auto value = [&](const std::string& key) {
        for (const auto& [name, attribute] : flat)
            if (name == key) return attribute;
        return Attribute{std::string("absent")};
    };
    CHECK(value("train.steps") == Attribute{std::int64_t{10}});
    CHECK(value("train.lr") == Attribute{1e-3});
    CHECK(value("model.mixer") == Attribute{std::string("softmax")});
    CHECK(value("model.tied_head") == Attribute{std::string("true")});
    CHECK(value("task.test.1.pairs") == Attribute{std::int64_t{4}});
    CHECK(value("model.layers") == Attribute{std::string("[]")});
}

TEST_CASE("the best shallow policy on the test questions") {
    // Two policies, three slices (one of them valid), classes of a slice beside each other.
    const std::vector<Slice> slices = {{0, 0, 0, 1, 8, ""}, {1, 0, 0, 1, 8, ""}, {1, 1, 0, 1, 8, ""}};
    std::vector<std::int64_t> answers(2 * 3 * 6, 0);
    const auto set = [&](std::size_t policy, std::size_t slice, std::int64_t correct, std::int64_t stale) {
        answers[(policy * 3 + slice) * 6] = correct;
        answers[(policy * 3 + slice) * 6 + 1] = stale;
    };
    set(0, 0, 10, 0);  // perfect on valid does not count
    set(0, 1, 1, 9);
    set(0, 2, 10, 20);
    set(1, 0, 0, 10);
    set(1, 1, 4, 6);
    set(1, 2, 9, 21);
    CHECK(best_policy_accuracy(slices, answers, AccuracyMean::answers) == Approx(13.0 / 40));
    CHECK(best_policy_accuracy(slices, answers, AccuracyMean::examples) == Approx((0.4 + 0.3) / 2));
    CHECK(std::isnan(best_policy_accuracy(slices, {}, AccuracyMean::answers)));
}

TEST_CASE("tables at the end of a sweep") {
    CHECK(mean_text(0.99876, 0.0012) == "0.999 ± 0.001");
    CHECK(mean_text(0.5, NAN) == "0.500");
    CHECK(mean_text(NAN, NAN) == "-");

    const auto run = [](const std::string& mixer, const std::string& seed, double accuracy) {
        CollectedRun collected;
        collected.run = {"id" + mixer + seed, "folder", {{"model.mixer", mixer}, {"seed", seed}}};
        collected.present = true;
        if (std::isfinite(accuracy)) collected.record.summary = {{"test_accuracy", accuracy}, {"test_stale_rate", 0.25}, {"best_policy_accuracy", 0.5}};
        return collected;
    };
    CHECK(result_table({run("linear", "1", 0.5), run("linear", "2", 0.7), run("delta", "1", 1.0), run("delta", "2", NAN)}, {"model.mixer", "seed"}) ==
          "model.mixer       accuracy          stale  best policy  runs\n"
          "linear       0.600 ± 0.141  0.250 ± 0.000        0.500  2\n"
          "delta                1.000          0.250        0.500  1 of 2\n");
    CHECK(result_table({run("delta", "1", NAN)}, {"model.mixer", "seed"}).empty());

    const TemporaryFolder folder;
    write_file_atomic(folder / "run.log", "");
    RunOutcome good, bad, refused;
    good.state = RunState::finished;
    bad.state = refused.state = RunState::failed;
    bad.run_id = refused.run_id = "0123456789ab";
    bad.human = "delta";
    bad.folder = folder.path;
    bad.message = "cannot write\nthe disk is full\n";
    refused.folder = "/nowhere";
    refused.message = "no GPU was found";
    CHECK(failure_table({good, bad, refused}) == "run             error             log" + std::string(folder.path.size() + 8 - 3, ' ') + "  try again\n" +
                                                     "01234567 delta  the disk is full  " + folder.path + "/run.log  palimpsest resume " + folder.path +
                                                     "\n01234567        no GPU was found  -" + std::string(folder.path.size() + 8 - 1, ' ') + "  -\n");
    CHECK(failure_table({good}).empty());
}
