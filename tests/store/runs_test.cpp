#include "store/runs.h"

#include "many.h"

using namespace palimpsest;
using namespace palimpsest::sample;

TEST_CASE("a value reads alike from the plan and from the record") {
    CollectedRun small = run("delta", 3e-5, 1, scores(1, 1));
    small.run.varied[1].second = "3.0e-05";  // as the manifest writes it
    CHECK(value_of(small, "train.lr") == "3e-05");
    small.record = {};
    CHECK(value_of(small, "train.lr") == "3e-05");
    CHECK(value_of(small, "model.width") == "");
    small.record.config = {{"task.name", std::string("mqar")}};
    CHECK(value_of(small, "task") == "mqar");
}

TEST_CASE("keys that differ") {
    std::vector<CollectedRun> runs = grid();
    // The heads follow from the mixer, the width is one, the seed is averaged over.
    CHECK(differing_keys(runs, {"model.mixer", "train.lr", "seed"}) == Words{"model.mixer", "train.lr"});
    CHECK(differing_keys(runs, {}) == Words{"model.mixer", "train.lr"});
    CHECK(differing_keys({runs[4], runs[5]}, {"model.mixer", "train.lr", "seed"}) == Words{"train.lr"});
    // Of another sweep, with another width; the learning rate that was swept comes first.
    runs.push_back(run("delta", 1e-3, 1, {}));
    std::get<std::int64_t>(runs.back().record.config[1].second) = 128;
    CHECK(differing_keys(runs, {"train.lr"}) == Words{"train.lr", "model.mixer", "model.width"});
    // Two heads or four are a difference between runs of one mixer.
    runs.push_back(run("delta", 1e-3, 1, {}));
    std::get<std::int64_t>(runs.back().record.config.back().second) = 4;
    CHECK(differing_keys(runs, {"model.mixer"}) == Words{"model.mixer", "model.width", "train.lr", "mixers.delta.heads"});
    // What only some runs have tells them apart where nothing else does.
    CollectedRun more = run("softmax", 1e-3, 1, {});
    more.record.config.emplace_back("task.test.1.pairs", std::int64_t{4});
    CHECK(differing_keys({runs[0], more}, {}) == Words{"task.test.1.pairs"});
    more.record.config.push_back({"name", std::string("other")});
    more.record.config.push_back({"run.threads", std::int64_t{1}});
    CHECK(differing_keys({runs[0], more}, {}) == Words{"task.test.1.pairs"});
}

TEST_CASE("runs are chosen by key and values") {
    const std::vector<CollectedRun> runs = grid();
    CHECK(filter(runs, "model.mixer=delta").size() == 4);
    CHECK(ids(filter(runs, "train.lr=1e-2,3.0e-3")) ==
          Words{"softmax-0.003-1", "softmax-0.003-2", "delta-0.003-1", "delta-0.003-2", "delta-0.01-1"});
    CHECK(error_of([&] {
              filter(runs, "model.mixr=delta");
          }).rfind("no run has the config key 'model.mixr'; did you mean 'model.mixer'?", 0) == 0);
    CHECK(error_of([&] { filter(runs, "model.mixer=linear"); }) == "no run has model.mixer=linear; its values are: softmax, delta");
    CHECK(error_of([&] { filter(runs, "delta"); }) == "'delta' chooses nothing; write key=value, such as model.mixer=delta");
    CollectedRun layered = runs[0];
    layered.record.config.emplace_back("model.layers", std::string("[base_conv, softmax]"));
    CHECK(filter({runs[0], layered}, "model.layers=[base_conv, softmax]").size() == 1);
    CHECK(filter({runs[0], layered}, "model.layers=delta,[base_conv,softmax]").size() == 1);
}

TEST_CASE("what makes no other run is known from the schema") {
    for (const char* key : {"name", "run.device", "run.threads", "run.log_every", "run.flush_seconds", "run.checkpoint_every",
                            "data.check_overlap", "train.eval_batch", "eval.policies"})
        CHECK_FALSE(makes_another_run(key));
    for (const char* key : {"seed", "train.lr", "run.precision", "task.name", "task.train.0.examples", "mixers.delta.heads",
                            "mixers.delta", "model", "no.such"})
        CHECK(makes_another_run(key));
}

TEST_CASE("what a table averages over is named, the task always") {
    std::vector<CollectedRun> runs = grid();
    CHECK(averaged_keys(runs, {"model.mixer", "train.lr"}, {"model.mixer", "train.lr", "seed"}).empty());
    CHECK(averaged_keys(runs, {"model.mixer"}, {"model.mixer", "train.lr", "seed"}) == Words{"train.lr"});
    CHECK(averaged_keys(runs, {}, {}) == Words{"model.mixer", "train.lr"});
    // Two sweeps of a task each, told apart by their learning rates: without these a row averages over the tasks.
    for (CollectedRun& run : runs) {
        const bool small = std::get<double>(run.record.config[2].second) < 2e-3;
        run.record.config.emplace_back("task.name", std::string(small ? "mqar" : "overwrite"));
    }
    CHECK(differing_keys(runs, {"model.mixer", "train.lr"}) == Words{"model.mixer", "train.lr"});
    CHECK(averaged_keys(runs, {"model.mixer"}, {"model.mixer", "train.lr"}) == Words{"task", "train.lr"});
    CHECK(averaged_keys(runs, {"model.mixer", "train.lr"}, {"model.mixer", "train.lr"}).empty());
    CHECK(averaged_keys(runs, {"train.lr"}, {}) == Words{"model.mixer"});
    CHECK(averaged_keys(runs, {"model.mixer", "task.name"}, {"train.lr"}) == Words{"train.lr"});
}

TEST_CASE("of a run whose config cannot be read only what its sweep says is known") {
    std::vector<CollectedRun> runs = {run("delta", 1e-3, 1, {}), run("delta", 1e-3, 2, {}), run("delta", 3e-3, 1, {})};
    runs[2].record = {};
    CHECK(follows(runs, "model.width", {}));
    CHECK_FALSE(follows(runs, "train.lr", {}));
    CHECK(differing_keys(runs, {"train.lr", "seed"}) == Words{"train.lr"});
}

TEST_CASE("the test segments of a config, in words") {
    CollectedRun several = run("delta", 1e-3, 1, {});
    CHECK(test_segments(several).empty());
    several.record.config.insert(several.record.config.end(), {{"task.name", std::string("mqar")},
                                                               {"task.length", std::int64_t{64}},
                                                               {"task.pairs", std::int64_t{4}},
                                                               {"task.test.0.examples", std::int64_t{10}},
                                                               {"task.test.10.length", std::int64_t{256}},
                                                               {"task.test.2.length", std::int64_t{128}}});
    CHECK(test_segments(several) == Words{"length=64", "length=128", "length=256"});
    several.record.config.resize(several.record.config.size() - 2);
    CHECK(test_segments(several) == Words{"segment 0"});
}

TEST_CASE("a run that is there more than once counts once") {
    std::vector<CollectedRun> runs = {run("delta", 1e-3, 1, {}), run("delta", 1e-3, 2, scores(1, 1)),
                                      run("delta", 1e-3, 1, scores(0.5, 0.5)), run("delta", 1e-3, 2, scores(1, 0.9)),
                                      run("delta", 1e-3, 2, scores(1, 1))};
    const char* sweeps[] = {"a", "a", "b", "b", "b"};
    for (std::size_t i = 0; i < runs.size(); ++i) {
        runs[i].sweep = sweeps[i];
        runs[i].run.folder = fmt::format("{}/{}", sweeps[i], i);
    }
    const Copies copies = find_copies(runs);
    CHECK(copies.runs == 2);
    CHECK(copies.different == 1);
    CHECK(copies.id == "delta-0.001-1");
    CHECK(copies.folder == "a/0");
    CHECK(copies.other == "b/2");
    const std::vector<CollectedRun> once = each_once(runs, false);
    CHECK(ids(once) == Words{"delta-0.001-1", "delta-0.001-2"});
    CHECK(once[0].record.summary.at("valid_accuracy") == 0.5);  // the copy that has a result
    CHECK(once[0].run.folder == "b/2");
    CHECK(value_of(once[1], "sweep") == "a+b");
    CHECK(once[1].run.folder == "a/1");
    CHECK(each_once(runs, true).size() == 4);  // two of them stand in one sweep
    for (CollectedRun& run : runs) run.run.run_id.clear();
    CHECK(each_once(runs, false).size() == 5);  // nobody knows what they are
    CHECK(find_copies(runs).runs == 0);
}
