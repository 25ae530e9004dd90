// The lifetime of a run in its folder: what is lost is noticed, and what happens to one lane of a pack touches no other.
#include "core/error.h"
#include "core/file.h"
#include "store/hdf5.h"
#include "store/run_lock.h"
#include "store/run_reader.h"
#include "store/run_writer.h"
#include "sweep/attendant.h"
#include "sweep/catalog.h"
#include "sweep/execute_pack.h"
#include "sweep/plan.h"
#include "temporary_folder.h"
#include "train/checkpoint.h"

#include <atomic>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <memory>
#include <thread>

#include "catch.h"  // after torch, which has a CHECK of its own

using namespace palimpsest;
using namespace std::chrono_literals;

namespace {

using Catch::Matchers::StartsWith;

const std::string config = R"(
name: lanes
task: {name: overwrite, vocabulary: 32, length: 16, pairs: 2, train: [{examples: 100}], test: [{examples: 20}]}
data: {check_overlap: false}
model: {width: 8, depth: 1, mixer: delta}
mixers: {delta: {heads: 1}}
train: {steps: 30, batch: 4, lr: 1e-3, eval_every: 10}
run: {log_every: 4, checkpoint_every: 10, threads: 1, flush_seconds: 0.001}
)";

Experiment experiment(const std::string& sweep) {
    return parse_experiment("lanes.yaml", config + "sweep: " + sweep + "\n", {}, registry_catalog(), {});
}

struct Trial {
    explicit Trial(const std::string& sweep) : plan(experiment(sweep)) {
        options.results = results.path;
        options.command = "palimpsest sweep lanes.yaml";
        folders = planned_folders(results.path, plan);
    }

    std::vector<RunOutcome> train(const std::vector<std::size_t>& runs, const StopRequest& request = StopRequest()) const {
        std::vector<PackedRun> pack;
        for (const std::size_t i : runs) pack.push_back({&plan.runs[i], folders[i]});
        return execute_pack(plan, pack, sweep_id(plan), "test", options, request);
    }

    // At its first step.
    void stop(const std::vector<std::size_t>& runs) const {
        StopRequest request;
        request.signal = SIGINT;
        request.stop = true;
        for (const RunOutcome& outcome : train(runs, request)) REQUIRE(outcome.message == "interrupted at step 1");
    }

    RunRecord record(std::size_t run) const { return read_run(folders[run] + "/run.h5"); }
    std::string file(std::size_t run, const std::string& name) const { return folders[run] + "/" + name; }

    TemporaryFolder results;
    Experiment plan;
    ExecuteOptions options;
    std::vector<std::string> folders;
};

std::string error_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const Error& error) {
        return error.what();
    }
    return "no error";
}

std::vector<std::int64_t> from_steps(const RunRecord& record) {
    std::vector<std::int64_t> steps;
    for (const RunStart& start : record.starts) steps.push_back(start.from_step);
    return steps;
}

void cut(const std::string& path) { write_file_atomic(path, read_file(path).substr(0, 100)); }

void check_same(const RunRecord& a, const RunRecord& b) {
    CHECK(a.step == b.step);
    CHECK(a.train == b.train);
    CHECK(a.answers == b.answers);
    CHECK(a.loss_sum == b.loss_sum);
}

std::string taken_over() {
    const std::int64_t now = std::time(nullptr);
    return LockText{"elsewhere", "", "", "theirs", 1, now, now}.json();
}

}  // namespace

TEST_CASE("runs of other shapes are no lanes of one model") {
    const Trial trial("{grid: {model.mixer: [delta, softmax], model.width: [8, 16]}, seeds: 2}");
    const auto refusal = [&](std::size_t other) { return error_of([&] { trial.train({0, other}); }); };
    const auto message = [&](std::size_t other, const std::string& keys) {
        return fmt::format(
            "the runs {} and {} cannot train as lanes of one model: they differ in {}; lanes may differ in seed, train.lr, "
            "train.weight_decay, train.beta1, train.beta2, train.init_scale alone",
            short_id(trial.plan.runs[0].spec.id), short_id(trial.plan.runs[other].spec.id), keys);
    };
    CHECK(refusal(2) == message(2, "model.width"));
    CHECK_THAT(refusal(7), StartsWith(message(7, "model.width, model.mixer").substr(0, 80)));
    CHECK(list_folders(trial.results.path).empty());
    CHECK(refusal(1) == "no error");
}

TEST_CASE("runs at different steps each go on from their own") {
    const Trial trial("{seeds: 3}"), whole("{seeds: 3}");
    trial.stop({0});
    const std::vector<RunOutcome> outcomes = trial.train({0, 1, 2});
    whole.train({0});
    for (const RunOutcome& outcome : outcomes) REQUIRE(outcome.state == RunState::finished);
    CHECK(from_steps(trial.record(0)) == std::vector<std::int64_t>{0, 1});
    CHECK(from_steps(trial.record(1)) == std::vector<std::int64_t>{0});
    check_same(trial.record(0), whole.record(0));

    SECTION("one whose newest checkpoint is damaged goes back alone") {
        const Trial other("{seeds: 2}");
        other.stop({0, 1});
        cut(other.file(0, "checkpoints/step-000000001.ckpt"));
        for (const RunOutcome& outcome : other.train({0, 1})) REQUIRE(outcome.state == RunState::finished);
        CHECK(from_steps(other.record(0)) == std::vector<std::int64_t>{0, 0});
        CHECK(from_steps(other.record(1)) == std::vector<std::int64_t>{0, 1});
        check_same(other.record(0), whole.record(0));
    }
}

TEST_CASE("a folder that cannot be made costs its own lane alone") {
    const Trial trial("{seeds: 3}");
    make_folders(std::filesystem::path(trial.folders[1]).parent_path().string());
    write_file_atomic(trial.folders[1], "not a folder");
    const std::vector<RunOutcome> outcomes = trial.train({0, 1, 2});
    CHECK(outcomes[0].state == RunState::finished);
    CHECK(outcomes[1].state == RunState::failed);
    CHECK_THAT(outcomes[1].message, StartsWith("cannot create '" + trial.folders[1] + "': "));
    CHECK(outcomes[2].state == RunState::finished);
    CHECK(read_file(trial.folders[1]) == "not a folder");
}

TEST_CASE("a record of another version costs its own lane alone") {
    const Trial trial("{seeds: 2}");
    make_folders(trial.folders[1]);
    RunHeader header;
    header.run_id = trial.plan.runs[1].spec.id;
    header.train_metrics = {{"loss", "1", "loss"}};
    header.provenance = {{"version", std::string("0.1")}, {"commit", std::string("abc")}};
    RunWriter::create(trial.folders[1], header, 1e9);
    const std::string before = read_file(trial.file(1, "run.h5"));
    const std::vector<RunOutcome> outcomes = trial.train({0, 1});
    CHECK(outcomes[0].state == RunState::finished);
    CHECK(outcomes[1].state == RunState::failed);
    CHECK_THAT(outcomes[1].message, StartsWith("'" + trial.file(1, "run.h5") +
                                               "' was begun by another version of this program (version 0.1, commit abc)"));
    CHECK(RunFolder(trial.folders[1]).failure()->message == outcomes[1].message);
    CHECK_FALSE(file_exists(trial.file(1, "LOCK")));
    CHECK(read_file(trial.file(1, "run.h5")) == before);
}

TEST_CASE("a lock that is lost costs its own lane alone, and nothing more is written there") {
    Trial trial("{seeds: 2}");
    const Trial alone("{seeds: 2}");
    std::string then;
    const std::string theirs = taken_over();
    trial.options.on_progress = [&](const Progress& progress) {
        if (progress.step < 8 || !then.empty()) return;
        write_file_atomic(trial.file(1, "LOCK"), theirs);
        then = read_file(trial.file(1, "run.h5"));
    };
    const std::vector<RunOutcome> outcomes = trial.train({0, 1});
    CHECK(outcomes[0].state == RunState::finished);
    CHECK(outcomes[1].state == RunState::failed);
    CHECK(outcomes[1].message ==
          "'" + trial.folders[1] + "': the lock was taken over by pid 1 on host elsewhere; this process stops");
    CHECK(read_file(trial.file(1, "LOCK")) == theirs);
    CHECK(read_file(trial.file(1, "run.h5")) == then);
    // Nor its log, once it was noticed at the checkpoint of step 10; the other lane speaks on.
    CHECK(read_file(trial.file(1, "run.log")).find("step 20:") == std::string::npos);
    CHECK_THAT(read_file(trial.file(0, "run.log")), ContainsSubstring("step 20:"));
    CHECK(train::checkpoint_steps(trial.file(1, "checkpoints")).empty());
    for (const char* name : {"DONE", "FAILED.json"}) CHECK_FALSE(file_exists(trial.file(1, name)));
    alone.train({0, 1});
    check_same(trial.record(0), alone.record(0));
}

TEST_CASE("a run whose record is lost trains again") {
    const Trial trial("{seeds: 1}");
    REQUIRE(trial.train({0}).front().state == RunState::finished);
    const RunRecord before = trial.record(0);
    const RunFolder folder(trial.folders[0]);
    const auto lose = GENERATE(0, 1, 2);
    std::string reason = "'" + folder.file("run.h5") + "' is missing";
    if (lose == 0) {
        remove_file(folder.file("run.h5"));
    } else {
        cut(folder.file("run.h5"));
        reason = folder.lost_record();
        CHECK_THAT(reason, StartsWith("'" + folder.file("run.h5") + "' is damaged: "));
    }
    if (lose == 2) {
        remove_file(folder.file("DONE"));
        RunFolder(folder.path()).write_failed({"interrupted", "stopped by a signal", 20});
        CHECK(folder.state() == RunState::interrupted);
    } else {
        CHECK(folder.state() == RunState::lost);
        CHECK(decide(folder).action() == std::string("resume"));
        CHECK(decide(folder).reason == reason);
    }
    const RunOutcome outcome = trial.train({0}).front();
    CHECK_FALSE(outcome.skipped);
    REQUIRE(outcome.state == RunState::finished);
    CHECK(folder.state() == RunState::finished);
    check_same(trial.record(0), before);
    CHECK(from_steps(trial.record(0)) == std::vector<std::int64_t>{0});
    CHECK(outcome.test_accuracy == before.summary.at("test_accuracy"));
    CHECK(file_exists(folder.file("run.h5.damaged")) == (lose != 0));
    CHECK(folder_exists(folder.file("checkpoints.unused")));
    CHECK_THAT(read_file(folder.file("run.log")), ContainsSubstring(reason + "; the run trains from the beginning"));
    // Whatever else comes of it: no number is made up for a record that cannot be read.
    cut(folder.file("run.h5"));
    const RunOutcome read = read_outcome(trial.plan.runs[0], folder.path());
    CHECK(read.state == RunState::lost);
    CHECK_THAT(read.message, ContainsSubstring("is damaged"));
}

TEST_CASE("a record whose log is damaged is lost, whatever its summary says") {
    const Trial trial("{seeds: 1}"), whole("{seeds: 1}");
    trial.stop({0});
    whole.train({0});
    const RunFolder folder(trial.folders[0]);
    {
        const hdf5::Guard guard;
        const hdf5::Handle file = hdf5::open_file(read_file(folder.file("run.h5")), hdf5::Access::write);
        REQUIRE(H5Ldelete(file, "/train/loss", H5P_DEFAULT) >= 0);
        REQUIRE(H5Ldelete(file, "/train/step", H5P_DEFAULT) >= 0);
        write_file_atomic(folder.file("run.h5"), hdf5::image(file));
    }
    REQUIRE(trial.train({0}).front().state == RunState::finished);
    CHECK(file_exists(folder.file("run.h5.damaged")));
    check_same(trial.record(0), whole.record(0));
}

TEST_CASE("a run that came to its end is told as finished once DONE can be written") {
    Trial trial("{seeds: 1}");
    const RunFolder folder(trial.folders[0]);
    trial.options.on_progress = [&](const Progress&) { make_folders(folder.file("DONE/in the way")); };
    const RunOutcome outcome = trial.train({0}).front();
    CHECK(outcome.state == RunState::failed);
    CHECK_THAT(outcome.message, StartsWith("cannot write '" + folder.file("DONE") + "': "));
    CHECK(trial.record(0).status == "finished");
    CHECK_THAT(read_file(folder.file("run.log")), !ContainsSubstring("internal error"));
    std::filesystem::remove_all(folder.file("DONE"));
    trial.options.on_progress = {};
    const RunOutcome again = trial.train({0}).front();
    CHECK(again.state == RunState::finished);
    CHECK(from_steps(trial.record(0)) == std::vector<std::int64_t>{0});
}

TEST_CASE("the best shallow policy stays known where it is scored no more") {
    Trial trial("{seeds: 1}");
    const Trial whole("{seeds: 1}");
    trial.stop({0});
    trial.plan.runs[0].spec.eval.policies = false;
    const RunOutcome outcome = trial.train({0}).front();
    REQUIRE(outcome.state == RunState::finished);
    CHECK(outcome.best_policy == whole.train({0}).front().best_policy);
}

TEST_CASE("every start of a run records what made it") {
    const Trial trial("{seeds: 2}");
    trial.stop({0, 1});
    REQUIRE(trial.train({0}).front().state == RunState::finished);
    const RunRecord record = trial.record(0);
    REQUIRE(record.starts.size() == 2);
    const auto fact = [&](std::size_t start, const char* name) {
        for (const auto& [key, value] : record.starts[start].provenance)
            if (key == name) return value;
        return Attribute{std::string("absent")};
    };
    for (const char* name :
         {"commit", "dirty", "version", "libtorch", "hdf5", "command", "device", "threads", "workers", "host", "cpu"}) {
        INFO(name);
        CHECK(fact(0, name) == fact(1, name));
        // Sources without git, as in an archive of a release, have no commit that they could differ from.
        const bool told = name != std::string("dirty") || fact(1, "commit") != Attribute{std::string("unknown")};
        CHECK((fact(1, name) != Attribute{std::string("absent")}) == told);
    }
    CHECK(fact(0, "lanes") == Attribute{std::int64_t{2}});
    CHECK(fact(1, "lanes") == Attribute{std::int64_t{1}});
    CHECK(fact(1, "command") == Attribute{std::string("palimpsest sweep lanes.yaml")});
    double sum = 0;
    for (const RunStart& start : record.starts) {
        CHECK(start.seconds > 0);
        sum += start.seconds;
    }
    CHECK(record.summary.at("seconds") == Approx(sum));
}

TEST_CASE("what hangs keeps nobody from closing") {
    struct Shared {
        std::atomic<int> closed{0};
        std::atomic<bool> let_go{false}, gone{false};
    };
    const auto shared = std::make_shared<Shared>();
    std::vector<std::function<void()>> calls(20, [shared] { ++shared->closed; });
    calls[3] = [shared] {
        while (!shared->let_go) std::this_thread::sleep_for(1ms);
        shared->gone = true;
    };
    calls[7] = [] { throw std::runtime_error("a dead disk"); };
    const auto began = std::chrono::steady_clock::now();
    call_all(calls, began + 300ms);
    const auto took = std::chrono::steady_clock::now() - began;
    CHECK(took >= 300ms);
    CHECK(took < 5s);
    CHECK(shared->closed == 18);
    shared->let_go = true;
    while (!shared->gone) std::this_thread::yield();
    // Where nothing hangs nobody waits.
    const auto again = std::chrono::steady_clock::now();
    call_all(std::vector<std::function<void()>>(20, [shared] { ++shared->closed; }), again + 60s);
    CHECK(std::chrono::steady_clock::now() - again < 30s);
    CHECK(shared->closed == 38);
}
