#include "sweep/pack.h"

#include "core/error.h"
#include "core/file.h"
#include "store/run_lock.h"
#include "store/run_reader.h"
#include "sweep/catalog.h"
#include "sweep/execute_pack.h"
#include "sweep/plan.h"
#include "sweep/worker.h"
#include "temporary_folder.h"
#include "train/checkpoint.h"

#include <cmath>
#include <csignal>
#include <functional>
#include <limits>
#include <sys/stat.h>
#include <unistd.h>

#include "catch.h"

using namespace palimpsest;

namespace {

const std::string config = R"(
name: lanes
task: {name: overwrite, vocabulary: 32, length: 16, pairs: 2, train: [{examples: 100}], test: [{examples: 20}]}
data: {check_overlap: false}
model: {width: 8, depth: 1, mixer: delta}
mixers: {delta: {heads: 1}}
train: {steps: 30, batch: 4, lr: 1e-3, eval_every: 10}
run: {log_every: 4, checkpoint_every: 10, threads: 1}
)";

Experiment experiment(const std::string& sweep) {
    return parse_experiment("lanes.yaml", config + "sweep: " + sweep + "\n", {}, registry_catalog(), {});
}

using Packs = std::vector<std::vector<std::size_t>>;

std::vector<RunOutcome> train_pack(const Experiment& plan, const std::string& results, const std::vector<std::size_t>& runs,
                                   const StopRequest& request = StopRequest(),
                                   std::function<void(const Progress&)> on_progress = {}) {
    ExecuteOptions options;
    options.on_progress = std::move(on_progress);
    options.results = results;
    options.workers = 3;
    std::vector<PackedRun> pack;
    for (const std::size_t i : runs) pack.push_back({&plan.runs[i], planned_folders(results, plan)[i]});
    return execute_pack(plan, pack, sweep_id(plan), "test", options, request);
}

RunRecord record_of(const RunOutcome& outcome) { return read_run(outcome.folder + "/run.h5"); }

Attribute attribute(const Attributes& attributes, const std::string& name) {
    for (const auto& [key, value] : attributes)
        if (key == name) return value;
    return std::string("absent");
}

void check_close(const RunRecord& a, const RunRecord& b) {
    CHECK(a.run_id == b.run_id);
    CHECK(a.step == b.step);
    CHECK(a.eval_step == b.eval_step);
    for (const auto& [name, column] : a.train) {
        INFO(name);
        REQUIRE(b.train.count(name) == 1);
        const std::vector<float>& other = b.train.at(name);
        REQUIRE(column.size() == other.size());
        for (std::size_t i = 0; i < column.size(); ++i)
            CHECK(column[i] == Approx(static_cast<double>(other[i])).epsilon(1e-4).margin(1e-6));
    }
    for (std::size_t i = 0; i < a.loss_sum.size(); ++i) CHECK(a.loss_sum[i] == Approx(b.loss_sum[i]).epsilon(1e-4));
    for (const char* name : {"parameters", "state_bytes", "steps", "best_policy_accuracy"})
        CHECK(a.summary.at(name) == b.summary.at(name));
}

}  // namespace

TEST_CASE("runs that differ in lane values alone share a pack") {
    const Experiment plan =
        experiment("{grid: {model.mixer: [delta, softmax], train.lr: [1e-3, 3e-3], train.weight_decay: [0, 0.1]}, seeds: 2}");
    REQUIRE(plan.runs.size() == 16);
    const std::vector<std::int64_t> fresh(16, 0);
    CHECK((plan_packs(plan.runs, fresh, 16) == Packs{{0, 1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11, 12, 13, 14, 15}}));
    CHECK((plan_packs(plan.runs, fresh, 3) == Packs{{0, 1, 2}, {3, 4, 5}, {6, 7}, {8, 9, 10}, {11, 12, 13}, {14, 15}}));
    CHECK(plan_packs(plan.runs, fresh, 1).size() == 16);
    CHECK(plan_packs(plan.runs, fresh, 0).size() == 16);  // on the CPU lanes do not pay
    CHECK(most_lanes(0, Device::cuda) == 16);
    CHECK(most_lanes(4, Device::cuda) == 4);
    CHECK(most_lanes(4, Device::cpu) == 4);

    SECTION("begun ones go on with those of their step; what is done stands alone") {
        std::vector<std::int64_t> step = fresh;
        step[1] = step[3] = 20;
        step[2] = -1;
        const Packs packs = plan_packs(plan.runs, step, 16);
        CHECK((packs == Packs{{0, 4, 5, 6, 7}, {1, 3}, {2}, {8, 9, 10, 11, 12, 13, 14, 15}}));
    }
    SECTION("another shape, another pack") {
        for (const char* grid : {"train.batch: [4, 8]", "train.clip: [0, 1]", "data.seed: [0, 1]", "mixers.delta.heads: [1, 2]",
                                 "train.warmup: [0, 5]", "task.pairs: [1, 2]", "model.init_std: [0.02, 0.03]"}) {
            INFO(grid);
            const Experiment other = experiment(fmt::format("{{grid: {{{}}}, seeds: 2}}", grid));
            CHECK((plan_packs(other.runs, {0, 0, 0, 0}, 16) == Packs{{0, 1}, {2, 3}}));
        }
        for (const char* grid : {"train.beta1: [0.9, 0.8]", "train.beta2: [0.9, 0.8]", "train.init_scale: [1, 2]"})
            CHECK((plan_packs(experiment(fmt::format("{{grid: {{{}}}}}", grid)).runs, {0, 0}, 16) == Packs{{0, 1}}));
    }
}

TEST_CASE("a lane of a sweep is its run alone") {
    const Experiment plan = experiment("{grid: {train.lr: [1e-3, 1e-2]}, seeds: 2}");
    const TemporaryFolder packed, alone;
    const std::vector<RunOutcome> lanes = train_pack(plan, packed.path, {0, 1, 2, 3});
    REQUIRE(lanes.size() == 4);
    for (std::size_t i = 0; i < 4; ++i) {
        INFO(lanes[i].human << " " << lanes[i].message);
        REQUIRE(lanes[i].state == RunState::finished);
        CHECK(lanes[i].run_id == plan.runs[i].spec.id);
        for (const char* file : {"run.h5", "config.yaml", "run.log", "DONE", "checkpoints/step-000000030.ckpt"})
            CHECK(file_exists(lanes[i].folder + "/" + file));
        for (const char* file : {"LOCK", "FAILED.json"}) CHECK_FALSE(file_exists(lanes[i].folder + "/" + file));
        CHECK_THAT(read_file(lanes[i].folder + "/run.log"),
                   ContainsSubstring(short_id(plan.runs[i].spec.id) + ": step 30: valid accuracy"));
        const RunRecord record = record_of(lanes[i]);
        check_close(record, record_of(train_pack(plan, alone.path, {i}).front()));
        CHECK(record.sweep_id == sweep_id(plan));
        for (const Attributes* facts : {&record.provenance, &record.summary_attributes}) {
            CHECK(attribute(*facts, "lanes") == Attribute{std::int64_t{4}});
            CHECK(attribute(*facts, "workers") == Attribute{std::int64_t{3}});
        }
        CHECK(attribute(record_of(train_pack(plan, alone.path, {i}).front()).provenance, "lanes") == Attribute{std::int64_t{1}});
    }
}

TEST_CASE("a lane that diverges harms no other") {
    const Experiment plan = experiment("{grid: {train.init_scale: [1, 1e20]}, seeds: 2}");
    const TemporaryFolder folder;
    const std::vector<std::string> folders = planned_folders(folder.path, plan);
    std::vector<RunState> on_the_way;  // it is told as soon as it is known, and not when the others have come to their end
    const std::vector<RunOutcome> lanes = train_pack(plan, folder.path, {0, 1, 2, 3}, StopRequest(), [&](const Progress& progress) {
        if (progress.step == 8 && on_the_way.empty())
            for (const std::string& lane : folders) on_the_way.push_back(RunFolder(lane).state());
    });
    CHECK((on_the_way == std::vector<RunState>{RunState::running, RunState::running, RunState::failed, RunState::failed}));
    CHECK(read_file(folders[2] + "/run.log").find("step 10:") == std::string::npos);  // of the others
    CHECK(lanes[0].state == RunState::finished);
    CHECK(lanes[1].state == RunState::finished);
    for (const std::size_t i : {2u, 3u}) {
        CHECK(lanes[i].state == RunState::failed);
        CHECK_THAT(lanes[i].message, ContainsSubstring(fmt::format("lane {}", i)));
        CHECK(RunFolder(lanes[i].folder).state() == RunState::failed);
        CHECK_FALSE(file_exists(lanes[i].folder + "/LOCK"));
    }
}

TEST_CASE("a lane whose files cannot be written harms no other") {
    const Experiment plan = experiment("{seeds: 4}");
    const TemporaryFolder folder, calm;
    const std::vector<std::string> folders = planned_folders(folder.path, plan);
    const auto in_folder = [&](std::size_t i, const std::string& name) { return folders[i] + "/" + name; };
    make_folders(in_folder(1, "run.h5"));  // a folder where the file should be: it fails before the first step
    make_folders(in_folder(2, ""));
    write_file_atomic(in_folder(2, "checkpoints"), "");  // the other way round: it fails at the first checkpoint
    const std::vector<RunOutcome> lanes = train_pack(plan, folder.path, {0, 1, 2, 3}),
                                  undisturbed = train_pack(plan, calm.path, {0, 1, 2, 3});
    for (const std::size_t i : {0u, 3u}) {
        REQUIRE(lanes[i].state == RunState::finished);
        const RunRecord a = record_of(lanes[i]), b = record_of(undisturbed[i]);
        CHECK(a.step == b.step);
        CHECK(a.train == b.train);
        CHECK(a.answers == b.answers);
        CHECK(a.loss_sum == b.loss_sum);
    }
    for (const std::size_t i : {1u, 2u}) {
        CHECK(lanes[i].state == RunState::failed);
        CHECK_THAT(lanes[i].message, ContainsSubstring(in_folder(i, i == 1 ? "run.h5" : "checkpoints")));
        CHECK(RunFolder(lanes[i].folder).failure()->message == lanes[i].message);
        CHECK(RunFolder(lanes[i].folder).failure()->step == (i == 1 ? -1 : 10));
        CHECK_FALSE(file_exists(lanes[i].folder + "/LOCK"));
    }
    CHECK((record_of(lanes[2]).step == std::vector<std::int64_t>{4, 8}));
}

TEST_CASE("a pack that was stopped goes on, without the lanes that are done or busy") {
    const Experiment plan = experiment("{seeds: 4}");
    const TemporaryFolder folder, whole;
    StopRequest stop;
    stop.signal = SIGINT;
    stop.stop = true;
    for (const RunOutcome& outcome : train_pack(plan, folder.path, {0, 1, 2, 3}, stop)) {
        CHECK(outcome.message == "interrupted at step 1");
        CHECK(RunFolder(outcome.folder).state() == RunState::interrupted);
        CHECK(train::checkpoint_steps(outcome.folder + "/checkpoints") == std::vector<std::int64_t>{1});
    }
    CHECK(train_pack(plan, folder.path, {0}).front().state == RunState::finished);  // alone, in between
    RunFolder busy(planned_folders(folder.path, plan)[2]);
    RunLock busy_lock(busy.path());
    const std::vector<RunOutcome> rest = train_pack(plan, folder.path, {0, 1, 2, 3});
    CHECK(rest[0].skipped);
    CHECK(rest[0].state == RunState::finished);
    CHECK(rest[2].skipped);
    CHECK(rest[2].state == RunState::running);
    for (const std::size_t i : {1u, 3u}) {
        CHECK_FALSE(rest[i].skipped);
        REQUIRE(rest[i].state == RunState::finished);
        CHECK(attribute(record_of(rest[i]).provenance, "lanes") == Attribute{std::int64_t{4}});          // as it began
        CHECK(attribute(record_of(rest[i]).summary_attributes, "lanes") == Attribute{std::int64_t{2}});  // as it ended
    }
    const std::vector<RunOutcome> undisturbed = train_pack(plan, whole.path, {0, 1, 2, 3});
    for (const std::size_t i : {0u, 1u, 3u}) check_close(record_of(rest[i]), record_of(undisturbed[i]));
    busy_lock.release();
}

TEST_CASE("a worker reads the plan that was frozen") {
    const Experiment plan = experiment("{grid: {model.mixer: [delta, softmax], train.lr: [1e-3, 1e-2]}, seeds: 2}");
    Manifest planned = plan_sweep(plan, "results", "palimpsest sweep lanes.yaml");
    planned.runs = {planned.runs[3], planned.runs[6]};
    const std::string yaml = manifest_yaml(planned);
    const Manifest manifest = parse_manifest("manifest.yaml", yaml, "results/lanes");
    const std::vector<std::string> ids = {plan.runs[6].spec.id, plan.runs[3].spec.id};
    const Experiment again = planned_experiment("manifest.yaml", manifest, ids, registry_catalog());
    REQUIRE(again.runs.size() == 2);
    for (std::size_t i = 0; i < 2; ++i) {
        const PlannedRun& run = plan.runs[i == 0 ? 6 : 3];
        CHECK(again.runs[i].spec.id == run.spec.id);
        CHECK(again.runs[i].varied == run.varied);
        CHECK(again.runs[i].spec.resolved.same_content(run.spec.resolved));
    }
    CHECK(again.name == plan.name);
    CHECK(again.source_yaml == plan.source_yaml);
    CHECK(manifest.sweep_id == sweep_id(plan));
    CHECK(manifest.command == "palimpsest sweep lanes.yaml");
    CHECK(manifest.runs.at(0).folder == planned_folders("results", plan)[3]);

    const auto error_of = [&](const std::string& text, const std::string& id) -> std::string {
        try {
            planned_experiment("m.yaml", parse_manifest("m.yaml", text, "results/lanes"), {id}, registry_catalog());
        } catch (const Error& error) {
            CHECK(error.code() == ExitCode::usage);
            return error.what();
        }
        return "";
    };
    CHECK(error_of(yaml, "0123456789ab") == "'m.yaml' plans no run 0123456789ab");
    std::string edited = yaml;
    edited.replace(edited.find("steps: 30"), 9, "steps: 31");
    const std::string of_edited = error_of(edited, ids[1]);
    CHECK_THAT(of_edited, ContainsSubstring("where it plans " + ids[1] + ": was it edited"));
    CHECK(error_of(edited, ids[0]).empty());  // the other run is as it was
}

TEST_CASE("what a worker tells arrives whole") {
    Progress at;
    at.step = 5;
    at.steps = 10;
    at.loss = 0.25;
    at.gradient_norm = std::numeric_limits<double>::quiet_NaN();
    const std::string record = progress_record(at);
    CHECK(record.find('\n') == record.size() - 1);
    const std::optional<Progress> told = read_record(record).progress;
    REQUIRE(told);
    CHECK(told->step == 5);
    CHECK(told->steps == 10);
    CHECK(told->loss == 0.25);
    CHECK(std::isnan(told->gradient_norm));
    for (const char* other : {"", "hello", "[1]", "{}", "{\"step\": \"x\"}", "{\"step\": 1, \"steps\": 2}"})
        CHECK_FALSE(read_record(other).progress);
    CHECK(read_record(taken_record("0123456789ab")).taken == "0123456789ab");
    for (const std::string& other : {record, std::string("hello"), std::string("{\"taken\": 1}")})
        CHECK_FALSE(read_record(other).taken);
    CHECK_FALSE(read_record(taken_record("0123456789ab")).progress);
}

TEST_CASE("a worker that dies says how") {
    WorkOrder order;
    const auto end_of = [&](const std::string& program) {
        order.program = program;
        Worker worker(order);
        std::string heard;
        while (!worker.receive([&](const std::string& line) { heard += line + "\n"; })) ::usleep(1000);
        return heard + "-> " + worker.last_words();
    };
    CHECK(end_of("/bin/false") == "-> its worker left with code 1");
    try {
        Worker(WorkOrder{"/nowhere/at/all", "", "", {}, 1, 0});
        FAIL("started");
    } catch (const Error& error) {
        CHECK(std::string(error.what()) == "cannot start a worker: No such file or directory");
    }
    // A worker gets the plan on stdin.
    const TemporaryFolder folder;
    order.manifest = std::string(200'000, 'x') + "\n";
    write_file_atomic(folder / "kill", "#!/bin/sh\nwc -c >&2\nprintf 'error: half a line' >&2\nkill -6 $$\n");
    REQUIRE(::chmod((folder / "kill").c_str(), 0755) == 0);
    CHECK(end_of(folder / "kill") == "200001\nerror: half a line\n-> killed by signal 6 (SIGABRT); its last words: half a line");
    write_file_atomic(folder / "kill", "#!/bin/sh\nkill -9 $$\n");
    REQUIRE(::chmod((folder / "kill").c_str(), 0755) == 0);
    CHECK(end_of(folder / "kill") == "-> killed by signal 9 (SIGKILL), as is done when memory runs out");
}
