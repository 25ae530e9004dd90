// The pack law: what happens to one lane (numbers that are not finite, an early end, a listener or a folder that throws, a
// checkpoint that is refused) touches no other.
#include "config/diagnostics.h"
#include "config/value.h"
#include "core/error.h"
#include "core/file.h"
#include "mixers/mixer.h"
#include "support.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

using namespace palimpsest;
using namespace palimpsest::testing;

namespace {

// Throws from the n-th call of one of its functions on.
struct Failing : Recorder {
    std::string where;
    std::int64_t calls_before = 0;
    std::int64_t calls_after = 0;  // of any function, once it has thrown
    bool thrown = false;

    void reach(const std::string& here) {
        if (thrown) ++calls_after;
        if (here != where || calls_before-- > 0) return;
        thrown = true;
        throw std::runtime_error("no space left on device (" + here + ")");
    }
    void train_row(std::int64_t step, std::span<const float> metrics) override {
        reach("train_row");
        Recorder::train_row(step, metrics);
    }
    void eval(const EvalResult& result) override {
        reach("eval");
        Recorder::eval(result);
    }
    void progress(const Progress&) override { reach("progress"); }
    void checkpoint_begins(std::int64_t) override { reach("checkpoint_begins"); }
    void checkpoint_written(const std::string& path, std::int64_t step) override {
        reach("checkpoint_written");
        Recorder::checkpoint_written(path, step);
    }
    void warning(const std::string& message) override {
        reach("warning");
        Recorder::warning(message);
    }
    std::vector<LaneResult> ends;
    void ended(const LaneResult& result) override { ends.push_back(result); }
};

struct Pack {
    TemporaryFolder folder;
    std::vector<Failing> told = std::vector<Failing>(3);
    std::vector<LaneResult> results;

    std::string lane_folder(std::size_t r) const { return folder / ("lane" + std::to_string(r)); }
    std::vector<Lane> lanes(double lr_of_second = 3e-3) {
        std::vector<Lane> out;
        for (std::size_t r = 0; r < 3; ++r) {
            Lane lane;
            lane.values.seed = r + 1;
            lane.values.lr = r == 1 ? lr_of_second : 1e-3 * static_cast<double>(r + 1);
            lane.sink = &told[r];
            lane.checkpoint_folder = lane_folder(r);
            out.push_back(lane);
        }
        return out;
    }
};

RunSpec pack_spec() {
    RunSpec spec = small_run();
    spec.train.schedule = Schedule::constant;
    spec.train.eval_every = 4;
    spec.run.checkpoint_every = 4;
    return spec;
}

void redraw_features(RunSpec& spec, const std::string& options) {
    const AnySchema& schema = get_mixer("performer").schema();
    const std::shared_ptr<void> object = schema.make_default();
    Diagnostics diagnostics;
    schema.read(object.get(), parse_yaml("test", options), "mixers.performer", diagnostics);
    diagnostics.throw_if_any();
    spec.mixers["performer"] = object;
    spec.model.layers = {"performer", "softmax"};
}

bool same_rows(const Recorder& a, const Recorder& b) {
    if (a.row_steps != b.row_steps) return false;
    for (std::size_t i = 0; i < a.rows.size(); ++i)
        if (std::memcmp(a.rows[i].data(), b.rows[i].data(), a.rows[i].size() * sizeof(float)) != 0) return false;
    return true;
}

// Lanes 0 and 2 have the same numbers, bit for bit, in both packs.
void check_others(const Pack& pack, const Pack& calm, std::int64_t steps) {
    for (const std::size_t r : {0u, 2u}) {
        INFO("lane " << r);
        CHECK(pack.results[r].reason == StopReason::finished);
        CHECK(pack.results[r].step == steps);
        CHECK(same_rows(pack.told[r], calm.told[r]));
        REQUIRE(pack.told[r].evals.size() == calm.told[r].evals.size());
        for (std::size_t i = 0; i < calm.told[r].evals.size(); ++i) {
            CHECK(pack.told[r].evals[i].answers == calm.told[r].evals[i].answers);
            CHECK(pack.told[r].evals[i].loss_sum == calm.told[r].evals[i].loss_sum);
        }
        const train::Checkpoint end = train::read_checkpoint(pack.lane_folder(r), steps);
        CHECK(same_arrays(end, train::read_checkpoint(calm.lane_folder(r), steps)));
    }
}

}  // namespace

TEST_CASE("a listener that throws ends its lane and no other", "[train][pack]") {
    const RunSpec spec = pack_spec();
    Pack calm;
    calm.results = Trainer(spec, calm.lanes()).run(never_stop);
    struct Case {
        std::string where;
        std::int64_t calls_before, step;
        std::vector<std::int64_t> checkpoints;
    };
    for (const Case& c : {Case{"train_row", 1, 10, {4, 8}}, Case{"progress", 0, 5, {4}}, Case{"eval", 1, 8, {4}},
                          Case{"checkpoint_begins", 1, 8, {4}}, Case{"checkpoint_written", 0, 4, {4}}}) {
        INFO(c.where);
        Pack pack;
        pack.told[1].where = c.where;
        pack.told[1].calls_before = c.calls_before;
        pack.results = Trainer(spec, pack.lanes()).run(never_stop);
        check_others(pack, calm, 12);
        const LaneResult& failed = pack.results[1];
        CHECK(failed.reason == StopReason::failed);
        CHECK(failed.message == "no space left on device (" + c.where + ")");
        CHECK(failed.step == c.step);
        CHECK_THROWS_AS(std::rethrow_exception(failed.failure), std::runtime_error);
        CHECK(pack.told[1].calls_after == 0);
        CHECK(train::checkpoint_steps(pack.lane_folder(1)) == c.checkpoints);
    }
}

TEST_CASE("a checkpoint folder that cannot be written ends its lane and no other", "[train][pack]") {
    const RunSpec spec = pack_spec();
    Pack calm, pack;
    calm.results = Trainer(spec, calm.lanes()).run(never_stop);
    write_file_atomic(pack.lane_folder(1), "a file where the folder should be");
    pack.results = Trainer(spec, pack.lanes()).run(never_stop);
    check_others(pack, calm, 12);
    CHECK(pack.results[1].reason == StopReason::failed);
    CHECK_THAT(pack.results[1].message, ContainsSubstring(pack.lane_folder(1)));
    CHECK(pack.results[1].step == 4);
}

TEST_CASE("all lanes failed is the end of the pack", "[train][pack]") {
    Pack pack;
    for (Failing& told : pack.told) told.where = "train_row";
    pack.results = Trainer(pack_spec(), pack.lanes()).run(never_stop);
    for (const LaneResult& result : pack.results) {
        CHECK(result.reason == StopReason::failed);
        CHECK(result.step == 5);
    }
    for (const Failing& told : pack.told) {
        REQUIRE(told.ends.size() == 1);
        CHECK(told.ends[0].failure);
    }
}

TEST_CASE("a warning that cannot be told ends its lane and no other", "[train][pack]") {
    RunSpec spec = pack_spec();
    spec.train.non_finite = NonFinite::warn;
    Pack calm, pack;
    calm.results = Trainer(spec, calm.lanes()).run(never_stop);
    pack.told[1].where = "warning";
    pack.results = Trainer(spec, pack.lanes(1e30)).run(never_stop);
    check_others(pack, calm, 12);
    CHECK(pack.results[1].message == "no space left on device (warning)");
}

TEST_CASE("a lane that goes non-finite moves nothing of the others, random features included", "[train][pack]") {
    RunSpec spec = pack_spec();
    redraw_features(spec, "{redraw_every: 3}");
    Pack calm, pack;
    calm.results = Trainer(spec, calm.lanes()).run(never_stop);
    pack.results = Trainer(spec, pack.lanes(1e30)).run(never_stop);
    check_others(pack, calm, 12);
    CHECK(pack.results[1].reason == StopReason::non_finite);
    REQUIRE(pack.told[1].ends.size() == 1);
    CHECK(pack.told[1].ends[0].message == pack.results[1].message);
    CHECK(pack.told[1].ends[0].step == 2);
    for (const std::size_t r : {0u, 2u}) CHECK(pack.told[r].ends.empty());
    CHECK(pack.results[1].message ==
          "step 2, lane 1: the loss is not finite: the parameters are, the hidden states that the layers make of them are not");
    CHECK(train::checkpoint_steps(pack.lane_folder(1)).empty());
}

TEST_CASE("a lane that stopped early keeps the random features of its last step", "[train][pack]") {
    RunSpec spec = pack_spec();
    redraw_features(spec, "{redraw_every: 1}");
    spec.train.steps = 30;
    spec.train.eval_every = 1;
    Pack patient, pack;
    Trainer(spec, patient.lanes(3e-2)).run(never_stop);
    std::vector<double> best;  // of each lane; a threshold between the two greatest stops one lane and no other
    for (const Failing& told : patient.told) {
        best.push_back(0);
        for (const EvalResult& result : told.evals) best.back() = std::max(best.back(), result.valid_accuracy);
    }
    std::sort(best.begin(), best.end());
    spec.train.early_stop = best[1];
    const std::string name = "parameter/layers.0.mixer.directions";
    pack.results = Trainer(spec, pack.lanes(3e-2)).run(never_stop);
    std::int64_t first = 30, last = 0;
    for (std::size_t r = 0; r < 3; ++r) {
        const std::int64_t step = pack.results[r].step;
        first = std::min(first, step);
        last = std::max(last, step);
        RunSpec shorter = spec;
        shorter.train.steps = step;
        const TemporaryFolder folder;
        Lane alone = pack.lanes(3e-2)[r];
        alone.sink = nullptr;
        alone.checkpoint_folder = folder.path;
        Trainer(shorter, {alone}).run(never_stop);
        const train::Checkpoint end = train::read_checkpoint(folder.path, step),
                                of_pack = *train::newest_checkpoint(pack.lane_folder(r));
        CHECK(at::equal(*of_pack.find(name), *end.find(name)));
    }
    CHECK(first < last);  // one was frozen while another went on
}

TEST_CASE("a checkpoint that is refused fails its lane and no other", "[train][pack]") {
    const RunSpec spec = pack_spec();
    Pack calm, pack;
    calm.results = Trainer(spec, calm.lanes()).run(never_stop);
    Trainer(spec, pack.lanes()).run(never_stop);
    for (std::size_t r = 0; r < 3; ++r) remove_file(train::checkpoint_path(pack.lane_folder(r), 12));  // killed after step 8
    pack.told = std::vector<Failing>(3);
    Trainer trainer(spec, pack.lanes(0.5));
    REQUIRE(trainer.resume() == 8);
    const std::string message =
        "checkpoint " + train::checkpoint_path(pack.lane_folder(1), 8) + " belongs to another run: lr is 0.003 there and 0.5 here";
    CHECK(trainer.failure(1) != nullptr);
    CHECK(trainer.failure(0) == nullptr);
    pack.results = trainer.run(never_stop);
    for (Failing& told : calm.told) {  // of what was told after step 8
        told.row_steps.erase(told.row_steps.begin());
        told.rows.erase(told.rows.begin());
        told.evals.erase(told.evals.begin(), told.evals.begin() + 2);
    }
    check_others(pack, calm, 12);
    CHECK(pack.results[1].reason == StopReason::failed);
    CHECK(pack.results[1].message == message);
    CHECK(train::checkpoint_steps(pack.lane_folder(1)) == std::vector<std::int64_t>{8});
}
