#include "train/bench.h"

#include "core/error.h"
#include "support.h"

using namespace palimpsest;
using namespace palimpsest::testing;

TEST_CASE("quartiles lie between the samples") {
    const train::Spread one = train::spread_of({3});
    CHECK(one.median == 3);
    CHECK((one.lower == 3 && one.upper == 3 && one.least == 3));
    const train::Spread four = train::spread_of({4, 1, 3, 2});
    CHECK(four.median == 2.5);
    CHECK(four.lower == 1.75);
    CHECK(four.upper == 3.25);
    CHECK(four.least == 1);
}

TEST_CASE("a benchmark makes the steps it says, and times every part of each") {
    RunSpec spec = small_run();
    const bool fixed = GENERATE(false, true);
    spec.data.mode = fixed ? DataMode::fixed : DataMode::fresh;
    spec.task.train.push_back(segment("mqar", "{length: 48, pairs: 4, vocabulary: 32}", 5));  // fewer than a batch
    spec.train.epochs = 3;
    for (const std::size_t index : {0u, 1u}) {
        const train::StepBench bench = train::bench_steps(spec, index, 2, 3);
        CHECK(bench.length == (index == 0 ? 32 : 48));
        CHECK(bench.scored == (index == 0 ? 2 : 4));
        CHECK(bench.vocabulary == 32);
        CHECK(bench.batch == 8);
        CHECK(bench.threads == 1);
        CHECK(bench.parameters > 0);
        CHECK(bench.peak_memory > 1'000'000);
        REQUIRE(bench.times.total.size() == 3);
        CHECK(bench.times.not_finite == 0);
        for (std::size_t i = 0; i < 3; ++i) {
            double sum = 0;
            for (const std::vector<double>& part : bench.times.parts) {
                REQUIRE(part.size() == 3);
                CHECK(part[i] > 0);
                sum += part[i];
            }
            CHECK(sum <= bench.times.total[i]);
        }
    }
}

TEST_CASE("a run whose loss is not finite has no speed") {
    RunSpec spec = small_run();
    spec.train.lr = 1e38;
    spec.train.clip = 0;
    spec.train.schedule = Schedule::constant;
    try {
        train::bench_steps(spec, 0, 5, 5);
        FAIL("no error");
    } catch (const Error& error) {
        CHECK(std::string(error.what()) == "step 2: the loss or its gradient is not finite: such a run has no speed");
        CHECK(error.code() == ExitCode::run_failed);
    }
}
