// The sinks on a hand-written program, where every number can be checked by eye.
#include "support.h"
#include "task/draw.h"
#include "task/program.h"

namespace palimpsest {
using namespace testing;

namespace {

// keys 1 2 3, values 4 … 8, removed 9. Written out: 1 4 | 2 5 | 1 6 | 2 . | 3 9 | 0 7 | read 1 | read 2
struct Page : EventProgram {
    template <class Sink>
    PALIMPSEST_HD void emit(Rng&, Sink& sink) const {
        sink.write(0, 0);
        sink.write(1, 1);
        sink.write(0, 2);
        sink.read(1);
        sink.gap(1);
        sink.write(2, 3);
        sink.remove(2);
        sink.noise(0);
        sink.noise(7);
        sink.read(0);
        sink.read(1);
    }
};

Page page() {
    Page p;
    p.shape.length = 16;
    p.shape.queries = 3;
    p.shape.writes = 5;
    p.shape.max_overwrites = 1;
    p.shape.vocabulary = {.size = 10, .keys = 3, .value_first = 4, .values = 5, .removed = 9};
    return p;
}

// Two-token keys and values, in base 3: key 5 is "1 2", value 7 is "2 1".
struct Wide : EventProgram {
    template <class Sink>
    PALIMPSEST_HD void emit(Rng&, Sink& sink) const {
        sink.write(5, 7);
        sink.write(5, 8);
        sink.read(5);
    }
};

// The same value again is a write, but no change.
struct Again : EventProgram {
    template <class Sink>
    PALIMPSEST_HD void emit(Rng&, Sink& sink) const {
        for (const std::int64_t value : {1, 1, 2, 2, 1}) sink.write(0, value);
        sink.read(0);
    }
};

// One mistake at a time.
struct Wrong : EventProgram {
    int mistake = 0;
    template <class Sink>
    PALIMPSEST_HD void emit(Rng&, Sink& sink) const {
        sink.write(0, 0);
        if (mistake == 1) sink.read(1);
        if (mistake == 2) sink.write(1, 1);
        if (mistake == 3) sink.remove(0);
        if (mistake == 4) sink.read(0);
        sink.read(0);
        if (mistake == 5) sink.gap(1);
        if (mistake != 6) sink.gap(1);
    }
};

}  // namespace

TEST_CASE("a hand-written program is laid out as its events say", "[task]") {
    const ProgramOf<Page> program("page", {page()});
    const Batch batch = generate(program, {0});
    CHECK(batch.tokens == std::vector<std::int64_t>{1, 4, 2, 5, 1, 6, 2, 0, 3, 7, 3, 9, 0, 7, 1, 2});
    CHECK(batch.positions == std::vector<std::int64_t>{6, 14, 15});
    CHECK(batch.targets == std::vector<std::int64_t>{5, 6, 5});
    CHECK(batch.distance == std::vector<std::int64_t>{3, 9, 12});
    CHECK(batch.overwrites == std::vector<std::int64_t>{0, 1, 0});
    CHECK(program.trace(0, Stream::train, 0) == std::vector<std::string>{"write k0 v0 @0", "write k1 v1 @2", "write k0 v2 @4",
                                                                         "read k1 -> v1 @6 (distance 3, overwrites 0)", "gap 1 @7",
                                                                         "write k2 v3 @8", "remove k2 @10", "noise 0 7 @12",
                                                                         "read k0 -> v2 @14 (distance 9, overwrites 1)",
                                                                         "read k1 -> v1 @15 (distance 12, overwrites 0)"});
}

TEST_CASE("distance and overwrites may be left out", "[task]") {
    const ProgramOf<Page> program("page", {page()});
    std::vector<std::int64_t> tokens(16), positions(3), targets(3);
    BatchView view;
    view.tokens = tokens.data();
    view.positions = positions.data();
    view.targets = targets.data();
    const std::uint64_t example = 0;
    program.generate(0, Stream::train, {&example, 1}, view, 1);
    CHECK(targets == std::vector<std::int64_t>{5, 6, 5});
}

TEST_CASE("every class of answer is told apart", "[task]") {
    const ProgramOf<Page> program("page", {page()});
    const auto third_is = [&](std::int64_t answer_to_1, std::int64_t answer_to_2) {
        const auto classes = judge(program, {0}, {5, answer_to_1, answer_to_2});
        CHECK(classes[0] == Answer::correct);
        return std::pair(classes[1], classes[2]);
    };
    CHECK(third_is(6, 5) == std::pair(Answer::correct, Answer::correct));
    CHECK(third_is(4, 4) ==
          std::pair(Answer::stale, Answer::other_former));  // key 1 held 4 before; to key 2 that is another's past
    CHECK(third_is(5, 6) == std::pair(Answer::other_current, Answer::other_current));
    CHECK(third_is(7, 7) == std::pair(Answer::other_former, Answer::other_former));  // held by key 3, which was removed
    CHECK(third_is(8, 8) == std::pair(Answer::unbound, Answer::unbound));
    CHECK(third_is(9, 0) == std::pair(Answer::not_a_value, Answer::not_a_value));
    CHECK(third_is(-1, 1000) == std::pair(Answer::not_a_value, Answer::not_a_value));
}

TEST_CASE("answers of several tokens are judged as a whole", "[task]") {
    Wide wide;
    wide.shape = {.length = 11,
                  .queries = 1,
                  .writes = 2,
                  .max_overwrites = 1,
                  .vocabulary = {.size = 7, .keys = 3, .value_first = 4, .values = 3, .key_tokens = 2, .value_tokens = 2}};
    const ProgramOf<Wide> program("wide", {wide});
    const Batch batch = generate(program, {0});
    CHECK(batch.tokens == std::vector<std::int64_t>{2, 3, 6, 5, 2, 3, 6, 6, 2, 3, 0});
    CHECK(batch.positions == std::vector<std::int64_t>{9, 10});
    CHECK(batch.targets == std::vector<std::int64_t>{6, 6});
    CHECK(batch.distance == std::vector<std::int64_t>{1});
    CHECK(judge(program, {0}, {6, 6})[0] == Answer::correct);
    CHECK(judge(program, {0}, {6, 5})[0] == Answer::stale);
    CHECK(judge(program, {0}, {5, 6})[0] == Answer::unbound);
    CHECK(judge(program, {0}, {6, 3})[0] == Answer::not_a_value);
}

TEST_CASE("overwrites count changes, distance counts from the last write", "[task]") {
    Again again;
    again.shape = {.length = 11,
                   .queries = 1,
                   .writes = 5,
                   .max_overwrites = 2,
                   .vocabulary = {.size = 5, .keys = 1, .value_first = 2, .values = 3}};
    const ProgramOf<Again> program("again", {again});
    const Batch batch = generate(program, {0});
    CHECK(batch.overwrites == std::vector<std::int64_t>{2});
    CHECK(batch.distance == std::vector<std::int64_t>{1});
    CHECK(judge(program, {0}, {3})[0] == Answer::correct);  // 1 again, though also a former value
    CHECK(judge(program, {0}, {4})[0] == Answer::stale);
}

TEST_CASE("policies answer as their names say", "[task]") {
    const ProgramOf<Page> program("page", {page()});
    const auto answers = [&](Policy policy, std::uint64_t example = 0) {
        std::vector<std::int64_t> out(3);
        program.answer(policy, 1, Stream::train, {&example, 1}, out.data(), 1);
        return out;
    };
    CHECK(answers(Policy::last_written) == std::vector<std::int64_t>{6, 7, 7});
    CHECK(answers(Policy::first_of_key) == std::vector<std::int64_t>{5, 4, 5});
    CHECK(answers(Policy::majority_of_row) == std::vector<std::int64_t>{4, 4, 4});
    std::map<std::int64_t, int> of_key, of_row;
    for (std::uint64_t example = 0; example < 400; ++example) {
        ++of_key[answers(Policy::random_of_key, example)[1]];
        ++of_row[answers(Policy::random_of_row, example)[1]];
    }
    CHECK(of_key.size() == 2);  // 4 and 6
    CHECK(of_key[4] > 150);
    CHECK(of_key[6] > 150);
    CHECK(of_row.size() == 4);  // 4 5 6 7
    for (std::int64_t value = 4; value < 8; ++value) CHECK(of_row[value] > 60);
}

TEST_CASE("to look up a key is shallow where its value changes, and the task itself where it does not", "[task]") {
    Shape still, moving;
    moving.max_overwrites = 1;
    for (const Policy policy : {Policy::first_of_key, Policy::random_of_key}) {
        CHECK_FALSE(is_shallow(policy, still));
        CHECK(is_shallow(policy, moving));
    }
    for (const Policy policy : {Policy::last_written, Policy::random_of_row, Policy::majority_of_row})
        CHECK((is_shallow(policy, still) && is_shallow(policy, moving)));
}

TEST_CASE("a program that breaks its shape is found out", "[task]") {
    const auto run = [](int mistake) {
        Wrong wrong;
        wrong.mistake = mistake;
        wrong.shape = {.length = 4,
                       .queries = 1,
                       .writes = 1,
                       .max_overwrites = 0,
                       .vocabulary = {.size = 5, .keys = 2, .value_first = 3, .values = 2}};
        generate(ProgramOf<Wrong>("wrong", {wrong}), {9});
    };
    CHECK_NOTHROW(run(0));
    CHECK_THROWS_WITH(run(1), ContainsSubstring("task 'wrong' breaks its own shape in example 9: emit reads a key that holds no "
                                                "value. Mend emit or compile in tasks/wrong.cpp"));
    CHECK_THROWS_WITH(run(2), ContainsSubstring("in example 9: emit writes and removes more than 1 times (shape.writes)"));
    CHECK_THROWS_WITH(run(3), ContainsSubstring("in example 9: emit removes a key, but vocabulary.removed is not set"));
    CHECK_THROWS_WITH(run(4), ContainsSubstring("in example 9: emit must read exactly 1 times (shape.queries)"));
    CHECK_THROWS_WITH(run(5), ContainsSubstring("in example 9: emit lays out more than the 4 positions of the length"));
    CHECK_THROWS_WITH(run(6), ContainsSubstring("in example 9: emit lays out 3 positions of the length 4"));
}

TEST_CASE("an exception of a worker thread comes through", "[task]") {
    CHECK_THROWS_WITH(for_ranges(10, 1'000'000, 4,
                                 [](std::size_t begin, std::size_t) {
                                     if (begin > 0) throw Error(ExitCode::usage, "no");
                                 }),
                      "no");
    std::vector<int> visits(10);
    for_ranges(10, 1'000'000, 4, [&](std::size_t begin, std::size_t end) {
        for (; begin < end; ++begin) ++visits[begin];
    });
    CHECK(visits == std::vector<int>(10, 1));
}

TEST_CASE("weighted draws follow their weights, without replacement", "[task]") {
    for (const std::int64_t size : {1, 2, 3, 7, 8, 13}) {
        std::vector<std::int64_t> tree(static_cast<std::size_t>(size));
        std::vector<double> hits(tree.size());
        constexpr int rounds = 20'000;
        for (int round = 0; round < rounds; ++round) {
            Rng rng(1, Stream::train, static_cast<std::uint64_t>(round));
            WeightedDraw draw(tree.data(), size, [](std::int64_t i) { return i + 1; });
            const std::int64_t total = size * (size + 1) / 2;
            CHECK(draw.total() == total);
            const std::int64_t first = draw.draw(rng);
            REQUIRE(first < size);
            hits[static_cast<std::size_t>(first)] += 1.0 / rounds;
            if (round > 50) continue;
            std::vector<bool> seen(tree.size());
            std::int64_t next = first;
            for (std::int64_t i = 0; i < size; ++i) {
                if (i > 0) next = draw.draw(rng);
                REQUIRE(next < size);
                CHECK_FALSE(seen[static_cast<std::size_t>(next)]);
                seen[static_cast<std::size_t>(next)] = true;
                draw.lower(next, next + 1);
            }
            CHECK(draw.total() == 0);
        }
        for (std::int64_t i = 0; i < size; ++i)
            CHECK(hits[static_cast<std::size_t>(i)] ==
                  Approx(2.0 * static_cast<double>(i + 1) / static_cast<double>(size * (size + 1))).margin(0.015));
    }
}

TEST_CASE("a range is spread evenly", "[task]") {
    const auto all = [](std::int64_t low, std::int64_t high, std::int64_t count) {
        std::vector<std::int64_t> numbers;
        for (std::int64_t i = 0; i < count; ++i) numbers.push_back(spread(low, high, i, count));
        return numbers;
    };
    CHECK(all(0, 3, 4) == std::vector<std::int64_t>{0, 1, 2, 3});
    CHECK(all(0, 3, 8) == std::vector<std::int64_t>{0, 0, 1, 1, 2, 2, 3, 3});
    CHECK(all(0, 3, 2) == std::vector<std::int64_t>{1, 3});
    CHECK(all(2, 2, 3) == std::vector<std::int64_t>{2, 2, 2});
    CHECK(all(0, 1, 1) == std::vector<std::int64_t>{1});
}

TEST_CASE("distance buckets are powers of two up to the longest distance", "[task]") {
    CHECK(distance_buckets(2) == std::vector<std::int64_t>{1});
    CHECK(distance_buckets(64) == std::vector<std::int64_t>{1, 2, 4, 8, 16, 32, 64});
    CHECK(distance_buckets(65) == std::vector<std::int64_t>{1, 2, 4, 8, 16, 32, 64});
    CHECK(distance_buckets(66).back() == 128);
    const auto ends = distance_buckets(64);
    CHECK(bucket_of(1, ends) == 0);
    CHECK(bucket_of(2, ends) == 1);
    CHECK(bucket_of(3, ends) == 2);
    CHECK(bucket_of(4, ends) == 2);
    CHECK(bucket_of(5, ends) == 3);
    CHECK(bucket_of(63, ends) == 6);
    CHECK_THROWS_AS(bucket_of(65, ends), InternalError);
}

}  // namespace palimpsest
