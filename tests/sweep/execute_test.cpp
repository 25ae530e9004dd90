#include "sweep/execute.h"

#include "core/error.h"
#include "core/file.h"
#include "store/answers.h"
#include "store/run_reader.h"
#include "sweep/catalog.h"
#include "sweep/execute_pack.h"
#include "sweep/plan.h"
#include "temporary_folder.h"

#include <csignal>

#include "catch.h"

using namespace palimpsest;

namespace {

const std::string config = R"(
name: small
task: {name: overwrite, vocabulary: 32, length: 16, pairs: 2, train: [{examples: 100}], test: [{examples: 20}]}
data: {check_overlap: false}
model: {width: 8, depth: 1, mixer: delta}
mixers: {delta: {heads: 1}}
train: {steps: 20, batch: 4, lr: 1e-3}
run: {log_every: 5, checkpoint_every: 10, threads: 1}
)";

Experiment experiment(const std::string& extra = "") {
    return parse_experiment("small.yaml", config + extra, {}, registry_catalog(), {});
}

ExecuteOptions into(const TemporaryFolder& folder) {
    ExecuteOptions options;
    options.results = folder.path;
    options.command = "palimpsest run small.yaml";
    return options;
}

RunOutcome run_once(const Experiment& plan, const ExecuteOptions& options, const StopRequest& request) {
    return execute_pack(plan, {{&plan.runs[0], planned_folders(options.results, plan).front()}}, "", "test", options, request)
        .front();
}

bool has(const Attributes& attributes, const std::string& name, const Attribute& value) {
    for (const auto& [key, found] : attributes)
        if (key == name) return found == value;
    return false;
}

}  // namespace

TEST_CASE("a run leaves everything that a reader needs") {
    const TemporaryFolder folder;
    const Experiment plan = experiment();
    const StopRequest request;
    const RunOutcome outcome = run_once(plan, into(folder), request);
    REQUIRE(outcome.state == RunState::finished);
    CHECK_FALSE(outcome.skipped);
    for (const char* file : {"run.h5", "config.yaml", "run.log", "DONE"}) CHECK(file_exists(outcome.folder + "/" + file));
    for (const char* file : {"LOCK", "FAILED.json"}) CHECK_FALSE(file_exists(outcome.folder + "/" + file));
    CHECK(file_exists(folder / "latest/DONE"));

    const RunRecord record = read_run(outcome.folder + "/run.h5");
    CHECK(record.run_id == plan.runs[0].spec.id);
    CHECK(record.status == "finished");
    CHECK(record.step == std::vector<std::int64_t>{5, 10, 15, 20});
    CHECK(record.eval_step == std::vector<std::int64_t>{20});
    for (const char* name : {"test_accuracy", "valid_accuracy", "test_stale_rate", "best_step", "best_valid_accuracy",
                             "best_test_accuracy", "best_policy_accuracy", "final_loss", "parameters", "fixed_parameters",
                             "state_bytes", "state_length", "seconds", "tokens_per_second"}) {
        INFO(name);
        CHECK(record.summary.count(name) == 1);
    }
    double loss = 0;  // of all 20 updates, since there are fewer than 50
    for (const float mean : record.train.at("loss")) loss += static_cast<double>(mean) / 4;
    CHECK(record.summary.at("final_loss") == Approx(loss).epsilon(1e-6));
    CHECK(record.summary.at("test_accuracy") == accuracy(record, 0, 1));
    CHECK(record.summary.at("test_stale_rate") == class_rate(record, 0, 1, 1));
    CHECK(has(record.summary_attributes, "selected_by", std::string("valid_accuracy")));
    CHECK(has(record.provenance, "command", std::string("palimpsest run small.yaml")));
    CHECK(has(record.provenance, "device", std::string("cpu")));
    CHECK(has(record.provenance, "seed", std::int64_t{1}));
    CHECK(record.policy_answers.size() == record.policy_names.size() * record.slices.size() * 6);

    // The folder describes the run by itself.
    const Experiment again =
        parse_experiment("config.yaml", read_file(outcome.folder + "/config.yaml"), {}, registry_catalog(), {});
    CHECK(again.runs[0].spec.id == plan.runs[0].spec.id);

    SECTION("a second time it is skipped, and tells the same numbers") {
        const std::string before = read_file(outcome.folder + "/run.h5");
        const RunOutcome second = run_once(plan, into(folder), request);
        CHECK(second.skipped);
        CHECK(second.state == RunState::finished);
        CHECK(second.test_accuracy == outcome.test_accuracy);
        CHECK(read_file(outcome.folder + "/run.h5") == before);
    }
    SECTION("killed between the end of its file and DONE: it is not trained again") {
        const std::string before = read_file(outcome.folder + "/run.h5");
        remove_file(outcome.folder + "/DONE");
        const RunOutcome second = run_once(plan, into(folder), request);
        CHECK(second.skipped);
        CHECK(second.state == RunState::finished);
        CHECK(second.test_accuracy == outcome.test_accuracy);
        CHECK(file_exists(outcome.folder + "/DONE"));
        CHECK_FALSE(file_exists(outcome.folder + "/LOCK"));
        CHECK(read_file(outcome.folder + "/run.h5") == before);
    }
}

TEST_CASE("a run that is asked to stop can go on") {
    const TemporaryFolder folder;
    const Experiment plan = experiment();
    StopRequest stop;
    stop.signal = SIGTERM;
    stop.stop = true;
    const RunOutcome stopped = run_once(plan, into(folder), stop);
    CHECK(stopped.state == RunState::interrupted);
    CHECK(stopped.message == "interrupted at step 1");
    CHECK(stop.exit_code() == ExitCode::requeue);
    const RunFolder run(stopped.folder);
    CHECK(run.state() == RunState::interrupted);
    CHECK(run.failure()->reason == "requeue");
    CHECK(decide(run).reason == "interrupted at step 1");
    CHECK(read_run(run.file("run.h5")).status == "interrupted");
    CHECK(read_run(run.file("run.h5")).summary.empty());

    const RunOutcome resumed = run_once(plan, into(folder), StopRequest());
    CHECK(resumed.state == RunState::finished);
    const TemporaryFolder other;
    const RunOutcome whole = run_once(plan, into(other), StopRequest());
    const RunRecord a = read_run(resumed.folder + "/run.h5"), b = read_run(whole.folder + "/run.h5");
    CHECK(a.train == b.train);
    CHECK(a.answers == b.answers);
    CHECK(a.loss_sum == b.loss_sum);
}

TEST_CASE("a run that diverges fails, with the reason in its folder") {
    const TemporaryFolder folder;
    const Experiment plan = parse_experiment("small.yaml", config, {"train.lr=1e30", "train.clip=0"}, registry_catalog(), {});
    const RunOutcome outcome = run_once(plan, into(folder), StopRequest());
    CHECK(outcome.state == RunState::failed);
    CHECK_THAT(outcome.message, ContainsSubstring("is not finite"));
    const RunFolder run(outcome.folder);
    CHECK(run.state() == RunState::failed);
    CHECK(run.failure()->reason == "non_finite");
    CHECK(run.failure()->message == outcome.message);
    CHECK(read_run(run.file("run.h5")).status == "failed");
}

TEST_CASE("what does not fit together is refused before anything is created") {
    const TemporaryFolder folder;
    Catalog catalog = registry_catalog();
    catalog.check_task = nullptr;  // as a plan from elsewhere may be, which no config file stood for
    const Experiment plan = parse_experiment("small.yaml", config, {"task.pairs=40"}, catalog, {});
    CHECK_THROWS_AS(run_once(plan, into(folder), StopRequest()), Error);
    CHECK(list_folders(folder.path).empty());
    CHECK_THROWS_AS(execute_sweep(plan, into(folder), StopRequest()), Error);
    CHECK(list_folders(folder.path).empty());
}

TEST_CASE("a sweep that is asked to stop starts nothing more") {
    const Experiment plan = experiment("sweep: {grid: {seed: [1, 2]}}\n");
    const TemporaryFolder folder;
    StopRequest stop;
    stop.stop = true;
    const SweepResult result = execute_sweep(plan, into(folder), stop);
    REQUIRE(result.outcomes.size() == 2);
    for (const RunOutcome& outcome : result.outcomes) CHECK(outcome.state == RunState::fresh);
    CHECK(result.plan.sweep_id == sweep_id(plan));
    CHECK(list_folders(folder / "small").empty());
    CHECK(file_exists(folder / "small/manifest.yaml"));
}
