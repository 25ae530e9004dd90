// The laws of training: lanes, resume, what happens when a number is not finite, records of a run.
#include "core/error.h"
#include "core/file.h"
#include "mixers/mixer.h"
#include "support.h"

#include <cmath>
#include <cstring>

using namespace palimpsest;
using namespace palimpsest::testing;

namespace {

// A mixer that passes its input on. In step 7 of the lane of one seed the gradient of its parameter is 0 / 0; elsewhere it is 0.
constexpr std::uint64_t trapped_seed = 77;

class Trap final : public Mixer {
public:
    struct Options {};
    Trap(const BuildContext& context, const Options&)
        : trap_(context.scope.declare("trap", {1}, nn::InitRule::constant(0), nn::Decay::no)) {}
    at::Tensor forward(const at::Tensor& x, State*, const StepContext& context) override {
        if (!context.training) return x;
        const at::Tensor sprung = (context.step == 6).logical_and(context.lane_seeds == static_cast<std::int64_t>(trapped_seed));
        const at::Tensor safe = sprung.logical_not().to(at::kFloat);
        return x + (((*trap_).square().select(1, 0) + safe).sqrt() - safe).view({-1, 1, 1, 1});
    }

private:
    nn::Parameter trap_;
};

const RegisterMixer<Trap, Trap::Options> registered({"trap", "a gradient that is not finite", "", "", false},
                                                    []() -> const Schema<Trap::Options>& {
                                                        static const Schema<Trap::Options> schema;
                                                        return schema;
                                                    }());

struct Outcome {
    std::vector<LaneResult> results;
    std::vector<Recorder> recorders;
    std::vector<train::Checkpoint> checkpoints;  // at the end, per lane
};

std::string lane_folder(const TemporaryFolder& folder, std::size_t lane) { return folder / ("lane" + std::to_string(lane)); }

// Trains a pack from the beginning in a folder of its own.
Outcome train_pack(RunSpec spec, const std::vector<LaneValues>& values) {
    const TemporaryFolder folder;
    spec.run.checkpoint_every = 1'000'000;  // at the end only
    Outcome out;
    out.recorders = std::vector<Recorder>(values.size());
    std::vector<Lane> lanes;
    for (std::size_t r = 0; r < values.size(); ++r) lanes.push_back({values[r], &out.recorders[r], lane_folder(folder, r), {}});
    Trainer trainer(spec, lanes);
    out.results = trainer.run(never_stop);
    for (std::size_t r = 0; r < values.size(); ++r) {
        const std::vector<std::int64_t> steps = train::checkpoint_steps(lane_folder(folder, r));
        if (steps.empty()) out.checkpoints.emplace_back();
        else out.checkpoints.push_back(train::read_checkpoint(train::checkpoint_path(lane_folder(folder, r), steps.back())));
    }
    return out;
}

LaneValues with(std::uint64_t seed, double lr, double weight_decay = 0.1) {
    LaneValues out;
    out.seed = seed;
    out.lr = lr;
    out.weight_decay = weight_decay;
    return out;
}

bool same_rows(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i)
        if (std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0) return false;
    return true;
}

void check_same(const EvalResult& a, const EvalResult& b) {
    CHECK(a.step == b.step);
    CHECK(a.answers == b.answers);
    CHECK(a.loss_sum == b.loss_sum);
    CHECK(a.valid_accuracy == b.valid_accuracy);
    CHECK(a.test_accuracy == b.test_accuracy);
}

}  // namespace

TEST_CASE("lanes of a pack are the runs alone", "[train][lanes]") {
    RunSpec spec = small_run();
    spec.train.steps = 10;
    spec.model.embedding_dropout = 0.1;
    const std::vector<LaneValues> values{with(1, 1e-3), with(2, 3e-3, 0), with(3, 1e-2, 0.3)};
    const Outcome pack = train_pack(spec, values);
    for (std::size_t r = 0; r < values.size(); ++r) {
        const Outcome alone = train_pack(spec, {values[r]});
        // Products of several lanes are summed in another order: after ten steps parameters of order 0.1 agree to 2e-5.
        CHECK(largest_difference(pack.checkpoints[r], alone.checkpoints[0], "parameter/") < 2e-5);
        CHECK(largest_difference(pack.checkpoints[r], alone.checkpoints[0], "first_moment/") < 2e-5);
        REQUIRE(pack.recorders[r].rows.size() == alone.recorders[0].rows.size());
        for (std::size_t i = 0; i < pack.recorders[r].rows.size(); ++i) {
            CHECK(pack.recorders[r].rows[i][0] == Approx(alone.recorders[0].rows[i][0]).epsilon(1e-4));
            CHECK(pack.recorders[r].rows[i][2] == Approx(alone.recorders[0].rows[i][2]).epsilon(1e-3));
            CHECK(pack.recorders[r].rows[i][3] == alone.recorders[0].rows[i][3]);
        }
    }
    CHECK(largest_difference(pack.checkpoints[0], pack.checkpoints[1], "parameter/") > 1e-2);
}

TEST_CASE("a lane that goes non-finite harms no other", "[train][lanes]") {
    RunSpec spec = small_run();
    spec.train.schedule = Schedule::constant;
    const Outcome calm = train_pack(spec, {with(1, 1e-3), with(2, 1e-3), with(3, 1e-2)});
    const Outcome wild = train_pack(spec, {with(1, 1e-3), with(2, 1e30), with(3, 1e-2)});
    CHECK(wild.results[1].reason == StopReason::non_finite);
    for (const std::size_t r : {0u, 2u}) {
        CHECK(wild.results[r].reason == StopReason::finished);
        CHECK(same_arrays(wild.checkpoints[r], calm.checkpoints[r]));
        CHECK(same_rows(wild.recorders[r].rows, calm.recorders[r].rows));
    }
}

TEST_CASE("killed and resumed is uninterrupted, bit for bit", "[train][resume]") {
    RunSpec spec = small_run();
    spec.model.embedding_dropout = 0.1;
    spec.train.eval_every = 4;
    spec.train.warmup = 3;
    spec.task.train.push_back(segment("mqar", "{length: 48, pairs: 4, vocabulary: 32}", 60));
    spec.data.mode = GENERATE(DataMode::fresh, DataMode::fixed);
    const std::vector<LaneValues> values{with(1, 1e-3), with(2, 3e-3)};
    // `step_by_step`: interrupted after every step. Otherwise cut off with no farewell, at a checkpoint of step 5 or 10.
    const bool step_by_step = GENERATE(true, false);
    const bool damage = step_by_step ? false : GENERATE(true, false);
    spec.run.threads = damage ? 2 : 1;
    const Outcome whole = train_pack(spec, values);

    const TemporaryFolder folder;
    std::vector<Recorder> told(2);
    std::vector<LaneResult> results;
    spec.run.checkpoint_every = step_by_step ? 1'000'000 : 5;
    const auto lanes = [&] {
        std::vector<Lane> out;
        for (std::size_t r = 0; r < 2; ++r) out.push_back({values[r], &told[r], lane_folder(folder, r), {}});
        return out;
    };
    if (step_by_step) {
        const std::atomic<bool> at_once{true};
        for (std::int64_t start = 0; start < 12; ++start) {
            Trainer trainer(spec, lanes());
            REQUIRE(trainer.resume() == start);
            results = trainer.run(at_once);
            CHECK(results[0].reason == (start < 11 ? StopReason::interrupted : StopReason::finished));
        }
    } else {
        RunSpec shorter = spec;
        Trainer(shorter, lanes()).run(never_stop);
        // What a kill between steps 10 and 12 leaves: checkpoints 5 and 10 (here 10 and 12 stand; 12 is taken away).
        for (std::size_t r = 0; r < 2; ++r) {
            CHECK(train::checkpoint_steps(lane_folder(folder, r)) == std::vector<std::int64_t>{10, 12});
            const std::string path = train::checkpoint_path(lane_folder(folder, r), 12);
            if (!damage) {
                remove_file(path);
            } else if (r == 1) {
                write_file_atomic(path, read_file(path).substr(0, 3000));
            }
        }
        told = std::vector<Recorder>(2);
        Trainer trainer(spec, lanes());
        REQUIRE(trainer.resume() == 10);
        if (damage) {
            REQUIRE(told[1].warnings.size() == 1);
            CHECK(told[1].warnings[0] == "checkpoint " + train::checkpoint_path(lane_folder(folder, 1), 12) +
                                             " is damaged: its checksum is wrong; going back to the one before");
            CHECK(train::checkpoint_steps(lane_folder(folder, 0)) == std::vector<std::int64_t>{10});
        } else {
            CHECK(told[1].warnings.empty());
        }
        results = trainer.run(never_stop);
    }
    for (std::size_t r = 0; r < 2; ++r) {
        train::Checkpoint end = train::read_checkpoint(train::checkpoint_path(lane_folder(folder, r), 12));
        CHECK(same_arrays(end, whole.checkpoints[r]));
        CHECK(end.facts == whole.checkpoints[r].facts);
        check_same(results[r].last, whole.results[r].last);
        check_same(results[r].best, whole.results[r].best);
        if (step_by_step) {
            CHECK(told[r].row_steps == std::vector<std::int64_t>{5, 10, 12});
            CHECK(same_rows(told[r].rows, whole.recorders[r].rows));
            REQUIRE(told[r].evals.size() == 3);
            for (std::size_t i = 0; i < 3; ++i) check_same(told[r].evals[i], whole.recorders[r].evals[i]);
        }
    }
}

TEST_CASE("a checkpoint of another run or another model is refused", "[train][resume]") {
    RunSpec spec = small_run();
    spec.train.steps = 2;
    spec.run.checkpoint_every = 1;
    const TemporaryFolder folder;
    Lane lane{with(1, 1e-3), nullptr, folder.path, "aaaa"};
    Trainer(spec, {lane}).run(never_stop);
    const std::string path = train::checkpoint_path(folder.path, 2);

    const auto resume = [&] {
        Trainer trainer(spec, {lane});
        const std::int64_t step = trainer.resume();
        if (const std::exception_ptr refused = trainer.failure(0)) std::rethrow_exception(refused);
        return step;
    };
    CHECK(resume() == 2);
    lane.values.lr = 0.003;
    CHECK_THROWS_WITH(resume(), "checkpoint " + path + " belongs to another run: lr is 0.001 there and 0.003 here");
    lane.values.lr = 0.001;
    lane.run_id = "bbbb";
    CHECK_THROWS_WITH(resume(), "checkpoint " + path + " belongs to another run: run_id is aaaa there and bbbb here");
    lane.run_id = "";
    spec.model.norm = NormKind::rms;
    CHECK_THROWS_WITH(resume(),
                      ContainsSubstring("checkpoint " + path + " does not fit this model:\n  ") &&
                          ContainsSubstring("\n  'parameter/final_norm.bias' is float [16] in the checkpoint; not expected"));
    spec.model.norm = NormKind::layer;
    write_file_atomic(path, "palimpsest-checkpoint 7\nof another time\n");
    CHECK_THROWS_WITH(resume(),
                      ContainsSubstring("checkpoint " + path + " was written in format 7; this program reads formats 1 to 2"));
    CHECK(read_file(path) == "palimpsest-checkpoint 7\nof another time\n");  // for the program that reads it
}

TEST_CASE("resume without checkpoints, and with other threads", "[train][resume]") {
    RunSpec spec = small_run();
    spec.train.steps = 4;
    spec.run.checkpoint_every = 2;
    const TemporaryFolder folder;
    Recorder told;
    Lane lane{with(1, 1e-3), &told, folder.path, {}};
    CHECK(Trainer(spec, {lane}).resume() == 0);
    CHECK(told.warnings.empty());
    Trainer(spec, {lane}).run(never_stop);
    CHECK(told.checkpoints ==
          std::vector<std::string>{train::checkpoint_path(folder.path, 2), train::checkpoint_path(folder.path, 4)});

    spec.run.threads = 2;
    CHECK(Trainer(spec, {lane}).resume() == 4);
    REQUIRE(told.warnings.size() == 1);
    CHECK(told.warnings[0] == "resumed with threads 2 (before: 1): the numbers go on to rounding, not bit for bit");

    told.warnings.clear();
    for (const std::int64_t step : {2, 4}) write_file_atomic(train::checkpoint_path(folder.path, step), "nothing of the kind\n");
    CHECK(Trainer(spec, {lane}).resume() == 0);
    REQUIRE(told.warnings.size() == 3);
    CHECK(told.warnings[2] == "no step of which all lanes have a good checkpoint: starting from the beginning");

    // The damaged ones are gone: they neither push new ones out nor are tried again.
    spec.train.steps = 3;
    CHECK(train::checkpoint_steps(folder.path).empty());
    Trainer(spec, {lane}).run(never_stop);
    CHECK(train::checkpoint_steps(folder.path) == std::vector<std::int64_t>{2, 3});
}

TEST_CASE("a run that went non-finite is resumed from the last checkpoint before", "[train][resume][non_finite]") {
    RunSpec spec = small_run();
    spec.model.layers = {"trap", "softmax"};
    spec.run.checkpoint_every = 2;
    const std::string message = "step 7, lane 0: gradient of 'layers.0.mixer.trap' is not finite";
    const TemporaryFolder folder;
    Recorder told;
    Lane lane{with(trapped_seed, 1e-3), &told, folder.path, {}};
    const LaneResult first = Trainer(spec, {lane}).run(never_stop)[0];
    CHECK(first.message == message);
    CHECK(train::checkpoint_steps(folder.path) == std::vector<std::int64_t>{4, 6});

    // The same numbers fail again, the same way.
    Trainer again(spec, {lane});
    REQUIRE(again.resume() == 6);
    const LaneResult second = again.run(never_stop)[0];
    CHECK(second.reason == StopReason::non_finite);
    CHECK(second.message == message);
    CHECK(told.row_steps == std::vector<std::int64_t>{5, 7, 7});

    // What could change the numbers (here: another policy) goes on.
    spec.train.non_finite = NonFinite::skip;
    Trainer mended(spec, {lane});
    REQUIRE(mended.resume() == 6);
    CHECK(mended.run(never_stop)[0].reason == StopReason::finished);

    // Format 1 left a checkpoint of the failed end.
    train::Checkpoint end = train::read_checkpoint(folder.path, 12);
    end.facts.emplace_back("ended", "non_finite");
    end.facts.emplace_back("message", message);
    const std::string path = train::checkpoint_path(folder.path, 12);
    train::write_checkpoint(path, end);
    told.warnings.clear();
    Trainer old(spec, {lane});
    REQUIRE(old.resume() == 10);
    CHECK(told.warnings == std::vector<std::string>{"checkpoint " + path + " is one of a failed end (" + message +
                                                    "), from which nothing can go on; going back to the one before"});
}

TEST_CASE("stop: the lane keeps its last finite parameters and the tensor is named", "[train][non_finite]") {
    RunSpec spec = small_run();
    spec.train.schedule = Schedule::constant;
    const Outcome out = train_pack(spec, {with(1, 1e30)});
    CHECK(out.results[0].reason == StopReason::non_finite);
    CHECK(out.results[0].message ==
          "step 2, lane 0: the loss is not finite: the parameters are, the hidden states that the layers make of them are not");
    CHECK(out.results[0].step == 2);
    REQUIRE(out.recorders[0].row_steps == std::vector<std::int64_t>{2});
    CHECK(std::isfinite(out.recorders[0].rows[0][0]));  // of step 1, the only update
    CHECK(out.recorders[0].rows[0][4] == 1);
    CHECK(out.recorders[0].warnings.empty());
    CHECK(out.checkpoints[0].arrays.empty());  // of a failed end there is none: what was before it stays
}

TEST_CASE("skip and warn: the run goes on and the updates are counted", "[train][non_finite]") {
    RunSpec spec = small_run();
    spec.train.schedule = Schedule::constant;
    spec.train.non_finite = GENERATE(NonFinite::skip, NonFinite::warn);
    const Outcome out = train_pack(spec, {with(1, 1e30), with(1, 1e-3)});
    CHECK(out.results[0].reason == StopReason::finished);
    CHECK(out.results[0].step == 12);
    REQUIRE(out.recorders[0].rows.size() == 3);
    CHECK(out.recorders[0].rows[0][4] == 4);
    CHECK(out.recorders[0].rows[2][4] == 11);
    CHECK(std::isnan(out.recorders[0].rows[2][0]));
    CHECK(out.recorders[1].rows[2][4] == 0);
    CHECK(out.recorders[1].warnings.empty());
    if (spec.train.non_finite == NonFinite::skip) {
        CHECK(out.recorders[0].warnings.empty());
    } else {
        REQUIRE(out.recorders[0].warnings.size() == 3);
        CHECK(out.recorders[0].warnings[0] == "step 2, lane 0: the loss is not finite; update skipped (and 3 more up to step 5)");
    }
}

TEST_CASE("a gradient that is not finite is named", "[train][non_finite]") {
    RunSpec spec = small_run();
    spec.model.layers = {"trap", "softmax"};
    spec.train.non_finite = GENERATE(NonFinite::stop, NonFinite::skip, NonFinite::warn);
    const Outcome out = train_pack(spec, {with(1, 1e-3), with(trapped_seed, 1e-3)});
    const std::string message = "step 7, lane 1: gradient of 'layers.0.mixer.trap' is not finite";
    CHECK(out.results[0].reason == StopReason::finished);
    CHECK(out.recorders[0].rows.back()[4] == 0);
    if (spec.train.non_finite == NonFinite::stop) {
        CHECK(out.results[1].reason == StopReason::non_finite);
        CHECK(out.results[1].message == message);
        CHECK(out.results[1].step == 7);
        CHECK(out.results[1].last.step == 0);
        CHECK(out.recorders[1].row_steps == std::vector<std::int64_t>{5, 7});
    } else {
        CHECK(out.results[1].reason == StopReason::finished);
        CHECK(out.recorders[1].row_steps == std::vector<std::int64_t>{5, 10, 12});
        CHECK(out.recorders[1].rows.back()[4] == 1);
        CHECK(out.recorders[1].warnings == (spec.train.non_finite == NonFinite::warn
                                                ? std::vector<std::string>{message + "; update skipped"}
                                                : std::vector<std::string>{}));
    }
}

TEST_CASE("early stop ends one lane, the others go on", "[train][lanes]") {
    RunSpec spec = small_run();
    spec.train.steps = 60;
    spec.train.eval_every = 3;
    spec.train.early_stop = 1e-9;  // any right answer ends a lane
    spec.run.log_every = 4;
    const Outcome out = train_pack(spec, {with(1, 3e-2), with(2, 1e-9)});
    RunSpec patient = spec;
    patient.train.early_stop = 0;
    const Outcome all = train_pack(patient, {with(1, 3e-2), with(2, 1e-9)});
    for (std::size_t r = 0; r < 2; ++r) {
        std::int64_t expected = 60;
        for (const EvalResult& result : all.recorders[r].evals)
            if (result.valid_accuracy > 1e-9) expected = std::min(expected, result.step);
        CHECK(out.results[r].step == expected);
        CHECK(out.results[r].reason == (expected < 60 ? StopReason::early_stop : StopReason::finished));
        CHECK(out.recorders[r].row_steps.back() == expected);
        CHECK(out.results[r].last.step == expected);
        CHECK(*out.checkpoints[r].find("counter/updates")->data_ptr<std::int64_t>() == expected);  // frozen from then on
    }
    CHECK(out.results[0].step != out.results[1].step);
}

TEST_CASE("best and last are both kept", "[train]") {
    RunSpec spec = small_run();
    spec.train.steps = 20;
    spec.train.eval_every = 2;
    spec.train.lr = 3e-2;
    spec.eval.select_by = GENERATE(SelectBy::valid, SelectBy::test);
    const auto selected = [&](const EvalResult& e) {
        return spec.eval.select_by == SelectBy::valid ? e.valid_accuracy : e.test_accuracy;
    };
    const Outcome out = train_pack(spec, {with(4, 3e-2)});
    const std::vector<EvalResult>& evals = out.recorders[0].evals;
    REQUIRE(evals.size() == 10);
    const EvalResult* best = &evals[0];
    for (const EvalResult& e : evals)
        if (selected(e) > selected(*best)) best = &e;
    check_same(out.results[0].best, *best);
    check_same(out.results[0].last, evals.back());
}

TEST_CASE("rows are means over the steps since the row before", "[train]") {
    RunSpec spec = small_run();
    const Outcome coarse = train_pack(spec, {with(1, 1e-3)});
    spec.run.log_every = 1;
    const Outcome fine = train_pack(spec, {with(1, 1e-3)});
    CHECK(same_arrays(coarse.checkpoints[0], fine.checkpoints[0], "parameter/"));
    REQUIRE(fine.recorders[0].rows.size() == 12);
    REQUIRE(coarse.recorders[0].row_steps == std::vector<std::int64_t>{5, 10, 12});
    double loss = 0;
    for (std::size_t i = 5; i < 10; ++i) loss += fine.recorders[0].rows[i][0];
    CHECK(coarse.recorders[0].rows[1][0] == Approx(loss / 5).epsilon(1e-6));
    CHECK(coarse.recorders[0].rows[1][3] == fine.recorders[0].rows[9][3]);
    CHECK(fine.recorders[0].rows[0][0] == Approx(std::log(32.0)).epsilon(0.05));  // a new model knows nothing
}

TEST_CASE("values that the model cannot tell apart are no answer", "[train]") {
    RunSpec spec = small_run();
    spec.train.init_scale = 0;  // all logits are equal until the first update
    spec.train.lr = 0;
    Recorder recorder;
    Lane lane = lane_of(spec);
    lane.sink = &recorder;
    Trainer(spec, {lane}).run(never_stop);
    REQUIRE_FALSE(recorder.rows.empty());
    for (const std::vector<float>& row : recorder.rows) CHECK(row[1] == 0);
}

TEST_CASE("what the device cannot do is said before anything starts", "[train]") {
    RunSpec spec = small_run();
    spec.run.precision = Precision::bf16;
    CHECK_THROWS_WITH(
        Trainer(spec, {lane_of(spec)}),
        "run.precision: bf16 needs a GPU; on the CPU everything is fp32 (set run.device: cuda or run.precision: fp32)");
}
