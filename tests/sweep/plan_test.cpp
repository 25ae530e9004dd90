#include "sweep/plan.h"

#include "core/error.h"
#include "core/file.h"
#include "store/run_lock.h"
#include "store/run_writer.h"
#include "sweep/catalog.h"
#include "sweep/execute_pack.h"
#include "sweep/inspect.h"
#include "sweep/record.h"
#include "sweep/report.h"
#include "temporary_folder.h"

#include <cmath>

#include "catch.h"

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
    CHECK(planned_folders("results", one) == std::vector<std::string>{"results/plans/" + one.runs[0].spec.id + "-mqar-softmax"});
    CHECK(human_name(experiment("", {"model.layers=[base_conv, softmax]"}).runs[0]) == "mqar-base_conv+softmax");

    const Experiment many =
        experiment("sweep: {grid: {model.layers: [[base_conv, softmax], [delta, delta]], train.lr: [1e-3, 3e-3]}, seeds: 2}");
    REQUIRE(many.runs.size() == 8);
    CHECK(human_name(many.runs[0]) == "base_conv+softmax-lr=0.001-seed=1");
    CHECK(human_name(many.runs[7]) == "delta-lr=0.003-seed=2");
    CHECK(varied_text(many.runs[7].varied) == "model.layers=[delta, delta] train.lr=0.003 seed=2");
}

TEST_CASE("what is to be done with a run follows from its folder") {
    const TemporaryFolder folder;
    const RunFolder run(folder.path);
    CHECK(decide(run).action() == std::string("start"));
    write_file_atomic(run.file("run.h5"), "x");
    CHECK(decide(run).action() == std::string("resume"));
    CHECK_THAT(decide(run).reason, ContainsSubstring("run.h5' is damaged: "));
    RunFolder(folder.path).write_failed({"interrupted", "stopped by a signal", 400});
    CHECK(decide(run).action() == std::string("resume"));
    CHECK(decide(run).reason == "interrupted at step 400");
    RunFolder(folder.path).write_failed({"non_finite", "step 40, lane 0: the loss is not finite\nmore", 40});
    CHECK(decide(run).action() == std::string("resume"));
    CHECK(decide(run).reason == "failed at step 40: step 40, lane 0: the loss is not finite");
    RunFolder holder(folder.path);
    RunLock holder_lock(holder.path());
    CHECK(decide(run).action() == std::string("leave alone"));
    CHECK_THAT(decide(run).reason, ContainsSubstring("running: pid "));
    holder_lock.release();
    holder.write_done();  // finished, says the folder, and has nothing to show for it
    CHECK(decide(run).action() == std::string("resume"));
    CHECK_THAT(decide(run).reason, ContainsSubstring("run.h5' is damaged: "));
}

TEST_CASE("a manifest holds the whole plan and is read back") {
    const TemporaryFolder results;
    const Experiment plan = experiment(
        "sweep: {grid: {task: [{name: mqar, vocabulary: 32, length: 16, train: [{examples: 9}], test: [{pairs: 2}]}, "
        "{name: overwrite, vocabulary: 32, length: 16, pairs: 2, train: [{examples: 9}], test: [{}]}], "
        "model.mixer: [softmax, delta]}}");
    const std::string folder = sweep_folder(results.path, plan.name);
    CHECK(error_of([&] { read_manifest(folder); }) == "'" + folder + "' is no folder of a sweep: it holds no manifest.yaml");
    Manifest planned = plan_sweep(plan, results.path, "palimpsest sweep x.yaml");
    CHECK(PlanInForce(folder, planned).notes().empty());
    CHECK(read_file(folder + "/manifest.yaml") == manifest_yaml(planned));

    const Manifest manifest = read_manifest(folder);
    CHECK(manifest.name == "plans");
    CHECK(manifest.sweep_id == sweep_id(plan));
    CHECK(manifest.command == "palimpsest sweep x.yaml");
    CHECK(manifest.created == planned.created);
    CHECK(manifest.source_yaml == plan.source_yaml);
    CHECK(swept_keys(manifest.runs) == std::vector<std::string>{"task", "model.mixer"});
    REQUIRE(manifest.runs.size() == 4);
    const std::vector<std::string> folders = planned_folders(results.path, plan);
    for (std::size_t i = 0; i < 4; ++i) {
        CHECK(manifest.runs[i].run_id == plan.runs[i].spec.id);
        CHECK(manifest.runs[i].folder == folders[i]);
        CHECK(manifest.runs[i].varied == plan.runs[i].varied);
        CHECK(manifest.runs[i].config == emit_yaml(plan.runs[i].spec.resolved));  // whole
    }
}

TEST_CASE("a plan of any size is read back") {
    // Ten thousand runs with a config of as many values as many segments make: far more values than a config may hold.
    Manifest plan;
    plan.name = "large";
    plan.sweep_id = "0123456789ab";
    std::string config = "task:\n";
    for (int i = 0; i < 10; ++i) config += fmt::format("  - {{length: {}, pairs: 2}}\n", 16 + i);
    for (int i = 0; i < 10'000; ++i) {
        plan.runs.push_back({fmt::format("{:012x}", i),
                             fmt::format("results/large/{:012x}-x", i),
                             {{"a", "1"}, {"b", std::to_string(i)}, {"c", "2"}, {"seed", "3"}},
                             config});
    }
    const Manifest again = parse_manifest("manifest.yaml", manifest_yaml(plan), "results/large");
    REQUIRE(again.runs.size() == 10'000);
    CHECK(again.runs[9'999].folder == plan.runs[9'999].folder);
    CHECK(again.runs[9'999].config == config);
    CHECK(swept_keys(again.runs) == std::vector<std::string>{"a", "b", "c", "seed"});
}

TEST_CASE("a manifest that another wrote is understood, or refused with what to do") {
    const TemporaryFolder results;
    Manifest plan = plan_sweep(experiment("sweep: {seeds: 2}"), results.path, {});
    const std::string yaml = manifest_yaml(plan), folder = sweep_folder(results.path, "plans"), id = plan.runs[0].run_id;
    const auto with = [&](const std::string& old, const std::string& other) {
        std::string text = yaml;
        return text.replace(text.find(old), old.size(), other);
    };
    const auto refusal = [&](const std::string& text) { return error_of([&] { parse_manifest("m.yaml", text, folder); }); };
    // The first format told each run's config as changes to the first one's: its runs can be looked at, and trained after a new
    // start.
    const std::string older = fmt::format(
        "format: palimpsest-manifest 1\nname: plans\nsweep_id: \"5\"\ncreated: \"2026\"\ncommand: x\noverrides: []\n"
        "config: {{seed: 1}}\nruns:\n  - id: \"{}\"\n    folder: \"{}-seed=1\"\n    varied: {{seed: \"1\"}}\n    changes: {{}}\n",
        id, id.substr(0, 8));
    const Manifest read = parse_manifest("m.yaml", older, folder);
    REQUIRE(read.runs.size() == 1);
    CHECK(read.runs[0].folder == folder + "/" + id.substr(0, 8) + "-seed=1");
    CHECK(error_of([&] { planned_experiment("m.yaml", read, {id}, registry_catalog()); }) ==
          "'m.yaml' is a 'palimpsest-manifest 1', which holds no whole configs; start the sweep anew: it writes a "
          "'palimpsest-manifest 2' and goes on with its runs");
    CHECK(refusal(with("manifest 2", "manifest 3")) ==
          "'m.yaml' is a 'palimpsest-manifest 3'; this tool reads 'palimpsest-manifest 2' and writes it anew at the next "
          "`palimpsest sweep`, once that file is moved away");
    CHECK(refusal("seed: 1\n") == "'m.yaml' is no manifest of this tool: no 'format'");
    // Nothing outside of the sweep's folder is read or written.
    const std::string name = "\"" + id + "-seed=1\"";
    for (const char* outside : {"../../x", "/tmp/x", "..", ".", "", "a/b"})
        CHECK(refusal(with(name, fmt::format("\"{}\"", outside))) ==
              fmt::format("'m.yaml' plans a run in '{}'; a run's folder lies in that of its sweep, such as '0123456789ab-delta'",
                          outside));
}

TEST_CASE("a plan that has changed says how") {
    const TemporaryFolder results;
    const Experiment before = experiment("sweep: {grid: {train.lr: [1e-3, 3e-3]}}"),
                     after = experiment("sweep: {grid: {train.lr: [3e-3, 1e-2]}}");
    const std::string folder = sweep_folder(results.path, before.name);
    const auto notes_of = [&](const Experiment& next) {
        Manifest plan = plan_sweep(next, results.path, {});
        return PlanInForce(folder, plan).notes();
    };
    CHECK(notes_of(before).empty());
    CHECK(notes_of(before).empty());
    const std::vector<std::string> notes = notes_of(after);
    REQUIRE(notes.size() == 2);
    CHECK(notes[0] == "the plan has changed since last time: 1 run new: " + short_id(after.runs[1].spec.id) + " (train.lr=0.01)");
    CHECK(notes[1] == "the plan has changed since last time: 1 run no longer planned (folders stay): " +
                          short_id(before.runs[0].spec.id) + " (train.lr=0.001)");
    CHECK(sweep_id(before) != sweep_id(after));
}

TEST_CASE("sweeps at work in one folder at one time have one plan") {
    const TemporaryFolder results;
    const Experiment first = experiment("sweep: {grid: {train.lr: [1e-3, 3e-3], model.mixer: [softmax, linear]}}");
    const Experiment turned =
        experiment("sweep: {grid: {model.mixer: [softmax, linear], train.lr: [1e-3, 3e-3]}}");  // the same runs by other names
    const Experiment other = experiment("sweep: {grid: {train.lr: [1e-3, 1e-2]}}");
    const std::string folder = sweep_folder(results.path, first.name);
    Manifest plan = plan_sweep(first, results.path, "palimpsest sweep first.yaml"),
             same = plan_sweep(turned, results.path, "palimpsest sweep turned.yaml");
    Manifest different = plan_sweep(other, results.path, "palimpsest sweep other.yaml");
    {
        const PlanInForce in_force(folder, plan);
        const std::string frozen = read_file(folder + "/manifest.yaml");
        CHECK(same.runs[1].folder != plan.runs[2].folder);
        const PlanInForce joined(folder, same);
        CHECK(joined.notes().empty());
        CHECK(same.runs[1].run_id == plan.runs[2].run_id);
        CHECK(same.runs[1].folder == plan.runs[2].folder);  // where the one that was first puts it
        CHECK(error_of([&] { PlanInForce(folder, different); }) ==
              "a sweep with another plan is at work in '" + folder + "' (since " + plan.created +
                  ": palimpsest sweep first.yaml); wait for its end, or give this one a name of its own: name=…");
        CHECK(read_file(folder + "/manifest.yaml") == frozen);
    }
    CHECK(PlanInForce(folder, different).notes().size() == 2);
    CHECK(read_manifest(folder).sweep_id == different.sweep_id);
}

TEST_CASE("a run is found by its id, whatever the name of its folder") {
    const TemporaryFolder results;
    const Experiment plan = experiment("sweep: {grid: {train.lr: [1e-3, 3e-3], model.mixer: [softmax, linear]}}");
    const std::string sweep = sweep_folder(results.path, plan.name);
    const auto folder_of = [&](std::size_t i) { return planned_folders(results.path, plan)[i].substr(sweep.size() + 1); };
    const auto hold = [&](const std::string& name, const std::string& id) {
        make_folders(sweep + "/" + name);
        RunHeader header;
        header.run_id = id;
        RunWriter writer = RunWriter::create(sweep + "/" + name, header, 1);
        writer.finish("finished", {}, {});
    };
    const auto id_of = [&](std::size_t i) { return plan.runs[i].spec.id; };
    CHECK(folder_of(0) == id_of(0) + "-lr=0.001-softmax");

    hold(id_of(0) + "-softmax", id_of(0));  // as it was called before the sweep had another axis
    CHECK(folder_of(0) == id_of(0) + "-softmax");
    CHECK(folder_of(1) == id_of(1) + "-lr=0.001-linear");
    make_folders(sweep + "/" + id_of(1) + "-linear");  // begun, with nothing in it yet
    CHECK(folder_of(1) == id_of(1) + "-linear");

    // Folders of older versions carry eight digits: that they are this run's is told by the file inside.
    const std::string old = id_of(2).substr(0, 8) + "-softmax";
    make_folders(sweep + "/" + old);
    CHECK(folder_of(2) == id_of(2) + "-lr=0.003-softmax");
    hold(old, id_of(2));
    CHECK(folder_of(2) == old);
    make_folders(sweep + "/" + id_of(2) + "-softmax");  // of two that have not finished the one with the whole id
    CHECK(folder_of(2) == id_of(2) + "-softmax");
    hold(id_of(3).substr(0, 8) + "-linear", id_of(3).substr(0, 8) + "ffff");  // another run that begins alike
    CHECK(folder_of(3) == id_of(3) + "-lr=0.003-linear");

    // Of two folders of one run the finished one counts.
    hold(id_of(0) + "-twice", id_of(0));
    CHECK(folder_of(0) == id_of(0) + "-softmax");
    RunFolder(sweep + "/" + id_of(0) + "-twice").write_done();
    CHECK(folder_of(0) == id_of(0) + "-twice");

    // A copy under another run's name would count as that run.
    hold(id_of(3) + "-lr=0.003-linear", id_of(2));
    CHECK(error_of([&] { planned_folders(results.path, plan); }) ==
          fmt::format("'{}/{}-lr=0.003-linear' holds the run {}, not {} as its name says: was it copied? Move it away, or give "
                      "this experiment another name",
                      sweep, id_of(3), id_of(2), id_of(3)));
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
    const std::string sweep = "sweep: {grid: {task.length: [16, 14, 12], model.mixer: [softmax, delta]}}";
    CHECK_THAT(error_of([&] { experiment(sweep); }),
               ContainsSubstring("error: 'task.test.1': length 14 is too short for 4 pairs and 4 queries: 2 * (pairs + queries) = "
                                 "16 <= length is needed\n"));
    Catalog catalog = registry_catalog();
    catalog.check_task = nullptr;  // as a plan from elsewhere may be, which no config file stood for
    const std::string wrong = error_of([&] { inspect_runs(parse_experiment("plans.yaml", config + sweep, {}, catalog, {}).runs); });
    CHECK_THAT(wrong, ContainsSubstring(
                          "length 14 is too short for 4 pairs and 4 queries: 2 * (pairs + queries) = 16 <= length is needed"));
    CHECK_THAT(wrong, ContainsSubstring("(run task.length=14 model.mixer=softmax)"));
    CHECK_THAT(wrong, ContainsSubstring("(run task.length=12 model.mixer=softmax)"));
    CHECK_THAT(wrong, !ContainsSubstring("model.mixer=delta"));  // the same mistake once
}

TEST_CASE("the resolved config becomes typed attributes") {
    Attributes flat = flat_config(experiment().runs[0].spec.resolved);
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
    // A key that the run does not use has no value, and the layers are one value whether they have options or not.
    const Attribute absent = std::string("absent");
    CHECK(value("model.layers") == absent);
    CHECK(value("model.mlp_expansion") == absent);
    flat = flat_config(experiment("", {"model.layers=[{mixer: base_conv, kernel: 5}, base_conv]"}).runs[0].spec.resolved);
    CHECK(value("model.layers") == Attribute{std::string("[{mixer: base_conv, kernel: 5}, {mixer: base_conv, kernel: 3}]")});
    CHECK(value("model.mixer") == absent);
    CHECK(value("mixers.base_conv.kernel") == absent);
    CHECK(value("mixers.base_conv.bias") == Attribute{std::string("true")});
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
    CHECK(best_policy_accuracy(slices, answers, AccuracyMean::answers) ==
          Approx(14.0 / 40));  // 4 of 10 by the second, 10 of 30 by the first
    CHECK(best_policy_accuracy(slices, answers, AccuracyMean::examples) == Approx((0.4 + 1.0 / 3) / 2));
    for (std::size_t c = 0; c < 6; ++c) answers[(0 * 3 + 2) * 6 + c] = -1;  // no shortcut in the second segment
    CHECK(best_policy_accuracy(slices, answers, AccuracyMean::answers) == Approx(13.0 / 40));
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
        if (std::isfinite(accuracy))
            collected.record.summary = {{"test_accuracy", accuracy}, {"test_stale_rate", 0.25}, {"best_policy_accuracy", 0.5}};
        collected.record.slices = {{1, 0, 1, 1, 8, "test all overwrites=1 distance=1..8"}};
        collected.record.policy_names = {"first_of_key", "majority_of_row"};
        return collected;
    };
    std::vector<CollectedRun> runs = {run("linear", "1", 0.5), run("linear", "2", 0.7), run("delta", "1", 1.0),
                                      run("delta", "2", NAN)};
    CHECK(result_table(runs, {"model.mixer", "seed"}).text ==
          "model.mixer       accuracy          stale  best policy  runs\n"
          "linear       0.600 ± 0.141  0.250 ± 0.000        0.500  2\n"
          "delta                1.000          0.250        0.500  1 of 2\n");
    CHECK(result_table(runs, {"model.mixer", "seed"}).legend ==
          "accuracy: of all test questions; ±: the sample deviation of a row's runs, beside their mean; stale: share of the "
          "answers that were true "
          "before; best policy: of first_of_key, majority_of_row");
    // Where no key is overwritten no answer can be stale.
    for (CollectedRun& one : runs) one.record.slices[0].overwrites = 0;
    CHECK(result_table({runs[0], runs[2]}, {"model.mixer", "seed"}).text ==
          "model.mixer  accuracy  best policy  runs\n"
          "linear          0.500        0.500     1\n"
          "delta           1.000        0.500     1\n");
    CHECK(result_table({runs[0], runs[2]}, {"model.mixer", "seed"}).legend ==
          "accuracy: of all test questions; best policy: of first_of_key, majority_of_row");
    // Runs that differ in more than what was swept by name have rows of their own: a list of layers may set options.
    std::vector<CollectedRun> options = {runs[0], runs[1]};
    for (std::size_t i = 0; i < 2; ++i)
        options[i].record.config = {{"model.mixer", std::string("linear")},
                                    {"mixers.linear.feature_map", std::string(i == 0 ? "relu" : "elu1")}};
    CHECK(result_table(options, {"model.mixer", "seed"}).text ==
          "model.mixer  mixers.linear.feature_map  accuracy  best policy  runs\n"
          "linear       relu                          0.500        0.500     1\n"
          "linear       elu1                          0.700        0.500     1\n");
    CHECK(result_table({run("delta", "1", NAN)}, {"model.mixer", "seed"}).text.empty());
    CHECK(result_table({run("delta", "1", NAN)}, {"model.mixer", "seed"}).legend.empty());

    const TemporaryFolder folder;
    write_file_atomic(folder / "run.log", "");
    RunOutcome good, bad, refused;
    good.state = RunState::finished;
    bad.state = refused.state = RunState::failed;
    bad.run_id = refused.run_id = "0123456789ab";
    bad.human = "delta";
    bad.folder = folder.path;
    bad.message = "the disk is full\nGo on elsewhere\n";
    refused.folder = "/nowhere";
    refused.message = "no GPU was found";
    CHECK(failure_table({good, bad, refused}) ==
          "run             error             log" + std::string(folder.path.size() + 8 - 3, ' ') + "  try again\n" +
              "01234567 delta  the disk is full  " + folder.path + "/run.log  palimpsest resume " + folder.path +
              "\n01234567        no GPU was found  -" + std::string(folder.path.size() + 8 - 1, ' ') + "  -\n");
    CHECK(failure_table({good}).empty());
    refused.message = "m.yaml:3:7: error: 'seed' must be at least 0, got -1\n  3 | seed: -1\n    |       ^~\n1 error";
    CHECK_THAT(failure_table({refused}), ContainsSubstring("  m.yaml:3:7: error: 'seed' must be at least 0, got -1  "));
}
