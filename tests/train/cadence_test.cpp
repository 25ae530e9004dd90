// The cadence law: what is logged, saved and evaluated how often may change at any resume without changing a recorded number.
#include "core/file.h"
#include "mixers/mixer.h"
#include "support.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace palimpsest;
using namespace palimpsest::testing;

namespace {

struct Told {
    Recorder recorder;
    std::vector<LaneResult> results;
    train::Checkpoint end;
};

RunSpec run_of(const std::string& mixer) {
    RunSpec spec = small_run();
    spec.model.layers = {"base_conv", mixer};
    spec.model.embedding_dropout = 0.1;
    spec.train.eval_every = 3;
    return spec;
}

Told whole_run(RunSpec spec) {
    const TemporaryFolder folder;
    Told out;
    spec.run.checkpoint_every = 1'000'000;  // at the end only
    Lane lane = lane_of(spec);
    lane.sink = &out.recorder;
    lane.checkpoint_folder = folder.path;
    out.results = Trainer(spec, {lane}).run(never_stop);
    out.end = train::read_checkpoint(folder.path, spec.train.steps);
    return out;
}

struct Cadence {
    std::int64_t log_every, checkpoint_every, eval_batch;
};

// Interrupted after every step, each start with the next cadence.
Told changed_at_every_step(RunSpec spec, const std::vector<Cadence>& cadences) {
    const TemporaryFolder folder;
    const std::atomic<bool> at_once{true};
    Told out;
    Lane lane = lane_of(spec);
    lane.sink = &out.recorder;
    lane.checkpoint_folder = folder.path;
    for (std::int64_t start = 0; start < spec.train.steps; ++start) {
        const Cadence& cadence = cadences[static_cast<std::size_t>(start) % cadences.size()];
        spec.run.log_every = cadence.log_every;
        spec.run.checkpoint_every = cadence.checkpoint_every;
        spec.train.eval_batch = cadence.eval_batch;
        Trainer trainer(spec, {lane});
        REQUIRE(trainer.resume() == start);
        out.results = trainer.run(at_once);
    }
    out.end = train::read_checkpoint(folder.path, spec.train.steps);
    return out;
}

void check_same(const EvalResult& a, const EvalResult& b) {
    CHECK(a.step == b.step);
    CHECK(a.answers == b.answers);
    CHECK(a.loss_sum == b.loss_sum);
    CHECK(a.valid_accuracy == b.valid_accuracy);
    CHECK(a.test_accuracy == b.test_accuracy);
}

// Each row is the mean of the fine rows since the row before it; the last row is at the last step.
void check_rows(const Recorder& told, const Recorder& fine, std::int64_t steps) {
    std::int64_t from = 0;
    for (std::size_t i = 0; i < told.rows.size(); ++i) {
        const std::int64_t to = told.row_steps[i];
        REQUIRE(from < to);
        for (std::size_t column = 0; column < 3; ++column) {
            double sum = 0;
            for (std::int64_t step = from; step < to; ++step) sum += fine.rows[static_cast<std::size_t>(step)][column];
            CHECK(told.rows[i][column] == Approx(sum / static_cast<double>(to - from)).epsilon(1e-6));
        }
        CHECK(told.rows[i][3] == fine.rows[static_cast<std::size_t>(to) - 1][3]);
        from = to;
    }
    CHECK(from == steps);
}

}  // namespace

TEST_CASE("cadences changed at every resume change no recorded number", "[train][cadence]") {
    for (const std::string& mixer : mixer_names()) {
        if (mixer == "trap") continue;
        INFO("mixer " << mixer);
        RunSpec spec = run_of(mixer);
        spec.run.log_every = 1;
        const Told fine = whole_run(spec);
        REQUIRE(fine.recorder.rows.size() == 12);
        const Told changed =
            changed_at_every_step(spec, {{5, 1'000'000, 0}, {1'000'000'000, 2, 3}, {2, 1, 1}, {7, 1'000'000, 20}, {3, 5, 7}});
        CHECK(same_arrays(changed.end, fine.end, "parameter/"));
        CHECK(same_arrays(changed.end, fine.end, "first_moment/"));
        CHECK(same_arrays(changed.end, fine.end, "second_moment/"));
        CHECK(same_arrays(changed.end, fine.end, "counter/"));
        REQUIRE(changed.recorder.evals.size() == fine.recorder.evals.size());
        for (std::size_t i = 0; i < fine.recorder.evals.size(); ++i) check_same(changed.recorder.evals[i], fine.recorder.evals[i]);
        check_same(changed.results[0].best, fine.results[0].best);
        CHECK(changed.results[0].final_loss == fine.results[0].final_loss);
        CHECK(changed.recorder.row_steps == std::vector<std::int64_t>{8, 12});  // where the log_every of that start says so
        check_rows(changed.recorder, fine.recorder, 12);
        CHECK(changed.recorder.warnings.empty());
    }
}

TEST_CASE("a row may stand for any number of steps, without their memory", "[train][cadence]") {
    RunSpec spec = run_of("softmax");
    spec.train.steps = 300;
    spec.train.batch = 1;
    spec.train.eval_every = 0;
    spec.run.log_every = 1;
    const Told fine = whole_run(spec);
    spec.run.log_every = 1'000'000'000;
    const Told coarse = whole_run(spec);
    CHECK(coarse.recorder.row_steps == std::vector<std::int64_t>{300});
    check_rows(coarse.recorder, fine.recorder, 300);
    double loss = 0;
    for (std::size_t step = 250; step < 300; ++step) loss += static_cast<double>(fine.recorder.rows[step][0]) / 50;
    CHECK(coarse.results[0].final_loss == Approx(loss).epsilon(1e-6));
    CHECK(coarse.results[0].final_loss == fine.results[0].final_loss);
    CHECK(same_arrays(coarse.end, fine.end, "parameter/"));
}

TEST_CASE("a step that is not finite is seen whatever the cadence", "[train][cadence]") {
    RunSpec spec = run_of("softmax");
    spec.train.lr = 1e30;
    spec.train.schedule = Schedule::constant;
    spec.run.log_every = 4;
    const std::string message =
        "step 2, lane 0: the loss is not finite: the parameters are, the hidden states that the layers make of them are not";
    const TemporaryFolder folder;
    Recorder told;
    Lane lane = lane_of(spec);
    lane.sink = &told;
    lane.checkpoint_folder = folder.path;
    const std::atomic<bool> at_once{true};
    CHECK(Trainer(spec, {lane}).run(at_once)[0].reason == StopReason::interrupted);  // after step 1, in the middle of a window
    spec.run.log_every = GENERATE(3, 5, 1'000'000'000);
    Trainer trainer(spec, {lane});
    REQUIRE(trainer.resume() == 1);
    const LaneResult result = trainer.run(never_stop)[0];
    CHECK(result.reason == StopReason::non_finite);
    CHECK(result.message == message);
    CHECK(result.step == 2);
    CHECK(told.row_steps == std::vector<std::int64_t>{2});
    CHECK(told.rows[0][4] == 1);
}

TEST_CASE("threads changed at a resume change the numbers to rounding", "[train][cadence]") {
    RunSpec spec = run_of("delta");
    spec.run.checkpoint_every = 1'000'000;
    const Told whole = whole_run(spec);
    const TemporaryFolder folder;
    const std::atomic<bool> at_once{true};
    Lane lane = lane_of(spec);
    lane.checkpoint_folder = folder.path;
    for (std::int64_t start = 0; start < spec.train.steps; ++start) {
        spec.run.threads = 1 + start % 2;
        Trainer trainer(spec, {lane});
        REQUIRE(trainer.resume() == start);
        trainer.run(at_once);
    }
    const train::Checkpoint end = train::read_checkpoint(folder.path, spec.train.steps);
    CHECK(largest_difference(end, whole.end, "parameter/") < 2e-5);
    CHECK(same_arrays(end, whole.end, "counter/"));
}

TEST_CASE("a checkpoint of format 1 is read, with its window", "[train][cadence]") {
    RunSpec spec = run_of("softmax");
    spec.run.log_every = 1;
    const Told fine = whole_run(spec);
    spec.run.log_every = 5;
    spec.run.checkpoint_every = 1'000'000;
    const TemporaryFolder folder;
    const std::atomic<bool> at_once{true};
    Recorder told;
    Lane lane = lane_of(spec);
    lane.sink = &told;
    lane.checkpoint_folder = folder.path;
    for (int start = 0; start < 3; ++start) {
        Trainer trainer(spec, {lane});
        trainer.resume();
        trainer.run(at_once);
    }
    // Format 1 holds the open window step by step.
    train::Checkpoint third = train::read_checkpoint(folder.path, 3);
    std::erase_if(third.arrays, [](const auto& array) { return array.first.starts_with("log/"); });
    at::Tensor window = at::zeros({3, 6});
    for (std::size_t step = 0; step < 3; ++step)
        std::copy_n(fine.recorder.rows[step].data(), 5, window.data_ptr<float>() + 6 * step);
    third.arrays.emplace_back("log/window", window);
    const std::string path = train::checkpoint_path(folder.path, 3);
    train::write_checkpoint(path, third);
    make_first_format(path);

    Trainer trainer(spec, {lane});
    REQUIRE(trainer.resume() == 3);
    trainer.run(never_stop);
    CHECK(told.warnings.empty());
    CHECK(told.row_steps == std::vector<std::int64_t>{5, 10, 12});
    check_rows(told, fine.recorder, 12);
    CHECK(same_arrays(train::read_checkpoint(folder.path, 12), fine.end, "parameter/"));
}
