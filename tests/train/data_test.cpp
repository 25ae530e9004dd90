// Which examples a step trains on.
#include "train/data.h"

#include "core/error.h"
#include "support.h"

#include <cstring>
#include <set>

using namespace palimpsest;
using namespace palimpsest::testing;
using train::BatchOrder;
using train::Turn;

namespace {

train::Segments three_segments(std::int64_t a, std::int64_t b, std::int64_t c) {
    TaskSpec task;
    task.name = "mqar";
    task.train = {segment("mqar", "{length: 32, pairs: 2, vocabulary: 32}", a),
                  segment("mqar", "{length: 48, pairs: 4, vocabulary: 32}", b),
                  segment("mqar", "{length: 64, pairs: 4, vocabulary: 32}", c)};
    task.test = {segment("mqar", "{length: 96, pairs: 4, vocabulary: 32}", 10)};
    return train::compile_segments(task);
}

TrainSpec steps(std::int64_t n, std::int64_t batch, std::int64_t epochs = 0) {
    TrainSpec out;
    out.steps = n;
    out.batch = batch;
    out.epochs = epochs;
    return out;
}

}  // namespace

TEST_CASE("interleaved segments keep to their share at every step", "[train][data]") {
    const train::Segments segments = three_segments(100, 20, 50);
    const std::int64_t weights[] = {100, 20, 50}, total = 170, n = 400;
    const BatchOrder order(segments.train, steps(n, 8), DataSpec{});
    std::int64_t had[3] = {};
    for (std::int64_t step = 0; step < n; ++step) {
        const Turn turn = order.at(step);
        CHECK(turn.batch == had[turn.segment]);
        CHECK(turn.rows == 8);
        ++had[turn.segment];
        for (int s = 0; s < 3; ++s) {
            CHECK(static_cast<double>(had[s]) < static_cast<double>((step + 1) * weights[s]) / total + 1);
            CHECK(static_cast<double>(had[s]) > static_cast<double>((step + 1) * weights[s]) / total - 2);
        }
        if ((step + 1) % 17 == 0)
            for (int s = 0; s < 3; ++s) CHECK(had[s] * total == (step + 1) * weights[s]);
    }
    // A longer run begins with the shorter one.
    const BatchOrder longer(segments.train, steps(1000, 8), DataSpec{});
    for (std::int64_t step = 0; step < n; ++step) CHECK(longer.at(step).segment == order.at(step).segment);
}

TEST_CASE("fresh examples are never seen twice and no two segments share one", "[train][data]") {
    const train::Segments segments = three_segments(100, 20, 50);
    const BatchOrder order(segments.train, steps(200, 8), DataSpec{});
    std::set<std::uint64_t> seen;
    for (std::int64_t step = 0; step < 200; ++step)
        for (const std::uint64_t id : order.examples(order.at(step), 1)) CHECK(seen.insert(id).second);
    CHECK(seen.size() == 1600);
    CHECK(order.examples(order.at(5), 1) == order.examples(order.at(5), 99));
}

TEST_CASE("an epoch of fixed data holds every example once, the last batch being smaller", "[train][data]") {
    const train::Segments segments = three_segments(100, 20, 50);
    DataSpec data;
    data.mode = DataMode::fixed;
    data.order = GENERATE(DataOrder::shuffled, DataOrder::in_order);
    data.segments = GENERATE(SegmentOrder::interleaved, SegmentOrder::in_order);
    const BatchOrder order(segments.train, steps(0, 16, 3), data);
    REQUIRE(order.epoch_steps() == 7 + 2 + 4);
    REQUIRE(order.steps() == 39);
    std::vector<std::vector<std::uint64_t>> epochs;
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
        std::set<std::uint64_t> seen;
        std::vector<std::uint64_t> in_order;
        std::int64_t last_segment = 0;
        for (std::int64_t i = 0; i < 13; ++i) {
            const Turn turn = order.at(epoch * 13 + i);
            CHECK(turn.epoch == epoch);
            CHECK(turn.rows == (turn.segment == 0 && turn.batch == 6   ? 4
                                : turn.segment == 1 && turn.batch == 1 ? 4
                                : turn.segment == 2 && turn.batch == 3 ? 2
                                                                       : 16));
            if (data.segments == SegmentOrder::in_order) CHECK(turn.segment >= last_segment);
            last_segment = turn.segment;
            for (const std::uint64_t id : order.examples(turn, 1)) {
                CHECK(seen.insert(id).second);
                in_order.push_back(id);
            }
        }
        CHECK(seen.size() == 170);
        epochs.push_back(in_order);
    }
    const bool shuffled = data.order == DataOrder::shuffled;
    CHECK((epochs[0] == epochs[1]) == !shuffled);
    CHECK((order.examples(order.at(0), 1) == order.examples(order.at(0), 2)) == !shuffled);
    if (!shuffled) CHECK(order.examples(order.at(0), 1).front() == 0);
}

TEST_CASE("fresh segments in order share the run in proportion", "[train][data]") {
    const train::Segments segments = three_segments(100, 20, 50);
    DataSpec data;
    data.segments = SegmentOrder::in_order;
    const BatchOrder order(segments.train, steps(340, 8), data);
    CHECK(order.at(199).segment == 0);
    CHECK(order.at(200).segment == 1);
    CHECK(order.at(239).segment == 1);
    CHECK(order.at(240).segment == 2);
    CHECK(order.at(339).segment == 2);
}

TEST_CASE("a lane's tokens are those of its seed alone, for any pack and thread count", "[train][data]") {
    const train::Segments segments = three_segments(100, 20, 50);
    const BatchOrder order(segments.train, steps(50, 8), DataSpec{});
    const train::TrainData pack(segments, order, {5, 7, 5}, at::kCPU, 2), alone(segments, order, {7}, at::kCPU, 1);
    for (const std::int64_t step : {0, 1, 2, 49}) {
        const train::Batch three = pack.batch(step), one = alone.batch(step);
        CHECK(three.tokens.select(0, 1).equal(one.tokens.select(0, 0)));
        CHECK(three.positions.select(0, 1).equal(one.positions.select(0, 0)));
        CHECK(three.targets.select(0, 1).equal(one.targets.select(0, 0)));
        CHECK(three.tokens.select(0, 0).equal(three.tokens.select(0, 2)));
        CHECK_FALSE(three.tokens.select(0, 0).equal(three.tokens.select(0, 1)));
        CHECK(three.tokens.size(2) == segments.train[static_cast<std::size_t>(order.at(step).segment)].program->shape().length);
    }
}

TEST_CASE("an order keeps a table only where several segments take turns", "[train][data]") {
    train::Segments segments = three_segments(100, 20, 50);
    CHECK(train::count_steps(segments.train, steps(1000, 8), DataSpec{}).table_bytes == 8000);
    DataSpec fixed, in_order;
    fixed.mode = DataMode::fixed;
    in_order.segments = SegmentOrder::in_order;
    // Of an epoch only what the run gets to.
    CHECK(train::count_steps(segments.train, steps(1000, 8), fixed).table_bytes == (13 + 3 + 7) * 8);
    CHECK(train::count_steps(segments.train, steps(5, 8), fixed).table_bytes == 40);
    CHECK(train::count_steps(segments.train, steps(1000, 8), in_order).table_bytes == 0);
    // Four thousand million fixed examples, one at a time: 32 GB, had it a table.
    segments.train.resize(1);
    segments.train[0].examples = 4'000'000'000;
    CHECK(train::count_steps(segments.train, steps(1000, 1), fixed).table_bytes == 0);
    const BatchOrder order(segments.train, steps(1000, 1), fixed);
    CHECK(order.epoch_steps() == 4'000'000'000);
    CHECK(order.at(999).batch == 999);
    CHECK(order.examples(order.at(999), 1).front() < 4'000'000'000);
}

TEST_CASE("numbers that cannot be counted are errors", "[train][data]") {
    train::Segments segments = three_segments(100, 20, 50);
    DataSpec fixed;
    fixed.mode = DataMode::fixed;
    CHECK_THROWS_WITH(BatchOrder(segments.train, steps(std::int64_t{1} << 29, 8), fixed),
                      "train.steps is 536870912; from 1 to 268435456 are possible");
    CHECK_THROWS_WITH(
        BatchOrder(segments.train, steps(0, 8, std::int64_t{1} << 62), fixed),
        "train.epochs is 4611686018427387904, but epochs of 23 batches make more than 268435456 steps; lower train.epochs or raise "
        "train.batch");
    // Their numbers would run into the bits that tell segments apart.
    CHECK_NOTHROW(BatchOrder(segments.train, steps(std::int64_t{1} << 10, std::int64_t{1} << 30), DataSpec{}));
    CHECK_THROWS_WITH(
        BatchOrder(segments.train, steps((std::int64_t{1} << 10) + 1, std::int64_t{1} << 30), DataSpec{}),
        "train.steps 1025 x train.batch 1073741824 are more than the 1099511627776 fresh examples that a run can tell apart; lower "
        "one of them");
    // 2^28 steps times 3 * 2^32 examples do not fit 64 bits, and still each segment has its third of the run.
    for (train::Segment& segment : segments.train) segment.examples = 4'294'967'294;
    segments.train.insert(segments.train.end(), 9, segments.train.front());
    DataSpec in_order;
    in_order.segments = SegmentOrder::in_order;
    const std::int64_t n = std::int64_t{1} << 28;
    const BatchOrder order(segments.train, steps(n, 1), in_order);
    for (const std::int64_t part : {0, 5, 11}) {
        CHECK(order.at((n * part + 11) / 12).segment == part);
        CHECK(order.at(n * (part + 1) / 12 - 1).segment == part);
    }
}

TEST_CASE("segments that do not fit together are errors", "[train][data]") {
    TaskSpec task;
    task.name = "mqar";
    CHECK_THROWS_WITH(train::compile_segments(task), "task.train has no segment: nothing to train on");
    task.train = {segment("mqar", "{length: 32, pairs: 2, vocabulary: 32}", 10)};
    CHECK_THROWS_WITH(train::compile_segments(task), "task.test has no segment: nothing to be judged by");
    task.test = {segment("mqar", "{length: 32, pairs: 2, vocabulary: 64}", 10)};
    CHECK_THROWS_WITH(
        train::compile_segments(task),
        "all segments of a run share one vocabulary, but train segment '{length: 32, pairs: 2, vocabulary: 32}' of task 'mqar' has "
        "32 "
        "tokens and valid segment '{length: 32, pairs: 2, vocabulary: 64}' has 64; set the vocabulary once, at the level of task");
    task.test = task.train;
    task.test[0].examples = 0;
    CHECK_THROWS_WITH(
        train::compile_segments(task),
        "valid segment '{length: 32, pairs: 2, vocabulary: 32}' of task 'mqar' has 0 examples; from 1 to 4294967294 are possible");
}
