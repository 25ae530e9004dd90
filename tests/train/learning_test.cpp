// From a config to an answer: a small model learns recall within seconds (recipe: T 64, 4 pairs, width 64, batch 64, lr 3e-3).
#include "support.h"

using namespace palimpsest;
using namespace palimpsest::testing;

TEST_CASE("softmax behind a short convolution learns recall", "[train][slow]") {
    RunSpec spec;
    spec.task.name = "mqar";
    const std::string options = "{length: 64, pairs: 4, vocabulary: 64}";
    spec.task.train = {segment("mqar", options, 20000)};
    spec.task.test = {segment("mqar", options, 250)};
    spec.model.layers = {"base_conv", "softmax"};
    spec.train.lr = 3e-3;
    spec.train.steps = 600;
    spec.train.schedule = Schedule::constant;
    spec.train.eval_every = 50;
    spec.train.early_stop = 0.95;
    Recorder told;
    Lane lane = lane_of(spec);
    lane.sink = &told;
    const std::vector<LaneResult> results = Trainer(spec, {lane}).run(never_stop);
    CHECK(results[0].reason == StopReason::early_stop);
    CHECK(results[0].last.test_accuracy > 0.9);
    CHECK(told.rows.front()[1] < 0.3);
}
