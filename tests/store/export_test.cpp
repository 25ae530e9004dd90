#include "store/export.h"

#include "sample.h"

#include <nlohmann/json.hpp>

#include <cmath>
#include <limits>

#include "catch.h"

using namespace palimpsest;
using Json = nlohmann::json;

namespace {

// One finished run, one that is going on, one that was never started; and words that want quoting.
std::vector<CollectedRun> runs() {
    CollectedRun done;
    done.run.run_id = "aa";
    done.state = RunState::finished;
    done.present = true;
    done.record.config = {{"model.layers", std::string("[base_conv, \"x\"]")}, {"train.lr", 1e-5}, {"seed", std::int64_t{1}}};
    done.record.step = {10, 20};
    done.record.train = {{"loss", {0.1f, std::numeric_limits<float>::quiet_NaN()}},
                         {"lr", {1.f / 3, std::numeric_limits<float>::infinity()}}};
    done.record.eval_step = {20};
    done.record.answer_classes = {"correct", "stale"};
    done.record.slices = {{0, 0, 0, 1, 8, "valid length=64 overwrites=0 distance=1..8"},
                          {1, 0, 0, 1, 8, "test length=64 overwrites=0 distance=1..8"},
                          {1, 0, 3, 9, 64, "test length=64 overwrites=3 distance=9..64"}};
    done.record.answers = {1, 1, 2, 0, 1, 3};
    done.record.loss_sum = {0.5, 1, 2};
    done.record.summary = {{"seconds", 0.1}, {"test_accuracy", 1.0 / 3}};
    CollectedRun running = done;
    running.run.run_id = "bb";
    running.state = RunState::running;
    running.record.config[0].second = std::string("two\nlines");
    running.record.summary.clear();
    running.record.train.erase("lr");
    running.record.eval_step.clear();
    running.record.answers.clear();
    CollectedRun planned;
    planned.run = {"cc", "", {{"train.lr", "3.0e-05"}, {"seed", "2"}}};
    return {done, running, planned};
}

const std::vector<std::string> keys = {"model.layers", "train.lr", "seed"};

std::string text(ExportTable table, ExportFormat format, std::vector<std::string>* missing = nullptr) {
    std::string out;
    const std::vector<CollectedRun> all = runs();
    const auto read = [](const CollectedRun& run) { return run.record; };
    for (const CollectedRun* run : export_runs(all, keys, table, format, read, [&](std::string_view piece) { out += piece; })) {
        if (missing) missing->push_back(run->run.run_id);
    }
    return out;
}

}  // namespace

TEST_CASE("a summary is a row a run, keys first, in csv") {
    std::vector<std::string> missing;
    CHECK(text(ExportTable::summary, ExportFormat::csv, &missing) ==
          "run_id,model.layers,train.lr,seed,state,seconds,test_accuracy\n"
          "aa,\"[base_conv, \"\"x\"\"]\",1e-05,1,finished,0.1,0.3333333333333333\n"
          "bb,\"two\nlines\",1e-05,1,running,,\n"
          "cc,,3e-05,2,fresh,,\n");
    CHECK(missing == std::vector<std::string>{"bb", "cc"});
}

TEST_CASE("the same in json, with null for what is not there") {
    const std::string out = text(ExportTable::summary, ExportFormat::json);
    CHECK(out.substr(0, 3) == "[\n{");
    const Json rows = Json::parse(out);
    REQUIRE(rows.size() == 3);
    CHECK(rows[0] == Json{{"run_id", "aa"},
                          {"model.layers", "[base_conv, \"x\"]"},
                          {"train.lr", 1e-5},
                          {"seed", 1},
                          {"state", "finished"},
                          {"seconds", 0.1},
                          {"test_accuracy", 1.0 / 3}});
    CHECK(rows[2]["model.layers"].is_null());
    CHECK(rows[2]["test_accuracy"].is_null());
    std::string none;
    const auto never = [](const CollectedRun&) { return RunRecord(); };
    export_runs({}, keys, ExportTable::summary, ExportFormat::json, never, [&](std::string_view piece) { none += piece; });
    CHECK(Json::parse(none) == Json::array());
}

TEST_CASE("the log has a row a step, with the digits of its numbers") {
    std::vector<std::string> missing;
    CHECK(text(ExportTable::train, ExportFormat::csv, &missing) ==
          "run_id,model.layers,train.lr,seed,step,loss,lr\n"
          "aa,\"[base_conv, \"\"x\"\"]\",1e-05,1,10,0.1,0.33333334\n"
          "aa,\"[base_conv, \"\"x\"\"]\",1e-05,1,20,,inf\n"
          "bb,\"two\nlines\",1e-05,1,10,0.1,\n"
          "bb,\"two\nlines\",1e-05,1,20,,\n");
    CHECK(missing == std::vector<std::string>{"cc"});
    const Json rows = Json::parse(text(ExportTable::train, ExportFormat::json));
    CHECK(rows[0]["lr"].get<float>() == 1.f / 3);
    CHECK(rows[1]["lr"].is_null());
}

TEST_CASE("evaluations have a row a segment, or a slice") {
    std::vector<std::string> missing;
    CHECK(text(ExportTable::evals, ExportFormat::csv, &missing) ==
          "run_id,model.layers,train.lr,seed,step,split,segment,label,answers,accuracy,loss,correct,stale\n"
          "aa,\"[base_conv, \"\"x\"\"]\",1e-05,1,20,valid,0,length=64,2,0.5,0.25,1,1\n"
          "aa,\"[base_conv, \"\"x\"\"]\",1e-05,1,20,test,0,length=64,6,0.5,0.5,3,3\n");
    CHECK(missing == std::vector<std::string>{"bb", "cc"});
    CHECK(text(ExportTable::slices, ExportFormat::csv) ==
          "run_id,model.layers,train.lr,seed,step,split,segment,label,overwrites,distance_from,distance_to,answers,accuracy,loss,"
          "correct,stale\n"
          "aa,\"[base_conv, \"\"x\"\"]\",1e-05,1,20,valid,0,length=64,0,1,8,2,0.5,0.25,1,1\n"
          "aa,\"[base_conv, \"\"x\"\"]\",1e-05,1,20,test,0,length=64,0,1,8,2,1,0.5,2,0\n"
          "aa,\"[base_conv, \"\"x\"\"]\",1e-05,1,20,test,0,length=64,3,9,64,4,0.25,0.5,1,3\n");
}
