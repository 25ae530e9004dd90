// What each task promises beyond the general laws.
#include "support.h"

#include <set>

namespace palimpsest {
using namespace testing;

namespace {

struct Quantiles {
    double median, mean, p90;
};

Quantiles query_offsets(const std::string& options, std::int64_t context, std::size_t count) {
    const auto program = compile("mqar", options);
    Batch batch = generate(*program, first_examples(count));
    std::vector<std::int64_t>& positions = batch.positions;
    for (std::int64_t& position : positions) position -= context;
    std::sort(positions.begin(), positions.end());
    const double sum = std::accumulate(positions.begin(), positions.end(), 0.0);
    return {static_cast<double>(positions[positions.size() / 2]), sum / static_cast<double>(positions.size()),
            static_cast<double>(positions[positions.size() * 9 / 10])};
}

std::vector<std::int64_t> row(const Batch& batch, const Program& program, std::size_t index) {
    const auto from = batch.tokens.begin() + static_cast<std::ptrdiff_t>(index) * program.shape().length;
    return {from, from + program.shape().length};
}

std::string message(const std::string& task, const std::string& options) {
    try {
        compile(task, options);
    } catch (const Error& error) {
        CHECK(error.code() == ExitCode::usage);
        return error.what();
    }
    return "no error";
}

}  // namespace

TEST_CASE("mqar asks at zoology's distances", "[task]") {
    struct Published {
        const char* options;
        std::int64_t pairs;
        Quantiles offset;
    };
    // Measured with that harness's defaults.
    for (const Published& p : {Published{"{length: 64, pairs: 4, vocabulary: 8192}", 4, {8, 14.5, 40}},
                               Published{"{length: 128, pairs: 8, vocabulary: 8192}", 8, {16, 28.5, 78}},
                               Published{"{length: 256, pairs: 16, vocabulary: 8192}", 16, {32, 56.7, 154}},
                               Published{"{length: 512, pairs: 64, vocabulary: 8192}", 64, {90, 123, 294}}}) {
        INFO(p.options);
        const Quantiles measured = query_offsets(p.options, 2 * p.pairs, 4000);
        CHECK(std::abs(measured.median - p.offset.median) <= 2);
        CHECK(measured.mean == Approx(p.offset.mean).epsilon(0.03));
        CHECK(std::abs(measured.p90 - p.offset.p90) <= 0.03 * p.offset.p90 + 2);
    }
}

TEST_CASE("mqar with power_a 1 asks anywhere alike", "[task]") {
    const Quantiles measured = query_offsets("{length: 64, pairs: 4, power_a: 1}", 8, 20'000);
    CHECK(measured.mean == Approx(27).margin(0.5));  // slots 0 2 … 54
    CHECK(measured.median == Approx(27).margin(1.1));
}

TEST_CASE("mqar: pairs first, distinct keys and values, each key once, in slots of two", "[task]") {
    const auto program = compile("mqar", "{length: 64, pairs: 8, vocabulary: 8192}");
    const Vocabulary& v = program->shape().vocabulary;
    CHECK(v.keys == 4095);
    CHECK(v.value_first == 4096);
    CHECK(v.values == 4096);
    const Batch batch = generate(*program, first_examples(200));
    for (std::size_t r = 0; r < 200; ++r) {
        const auto tokens = row(batch, *program, r);
        std::set<std::int64_t> keys, values, asked;
        for (std::size_t i = 0; i < 16; i += 2) {
            keys.insert(tokens[i]);
            values.insert(tokens[i + 1]);
        }
        CHECK(keys.size() == 8);
        CHECK(values.size() == 8);
        for (std::size_t i = 16; i < 64; ++i) {
            if (tokens[i] == 0) continue;
            CHECK(i % 2 == 0);
            asked.insert(tokens[i]);
        }
        CHECK(asked == keys);
    }
}

TEST_CASE("random filler is never a live key, unless asked to collide", "[task]") {
    const auto live_keys = [](const std::string& more) {
        const auto program = compile("mqar", "{length: 64, pairs: 8, vocabulary: 64, filler: random" + more + "}");
        const Batch batch = generate(*program, first_examples(300));
        std::int64_t total = 0;
        std::set<std::int64_t> kinds;
        for (std::size_t r = 0; r < 300; ++r) {
            const auto tokens = row(batch, *program, r);
            std::set<std::int64_t> keys;
            for (std::size_t i = 0; i < 16; i += 2) keys.insert(tokens[i]);
            total += std::count_if(tokens.begin(), tokens.end(), [&](std::int64_t token) { return keys.count(token) > 0; });
            kinds.insert(tokens.begin() + 16, tokens.end());
        }
        CHECK(kinds.size() == 64);  // the filler uses the whole vocabulary, 0 included
        return total;
    };
    CHECK(live_keys("") == 300 * 16);  // one write and one read each
    CHECK(live_keys(", filler_collides: true") > 300 * 16);
}

TEST_CASE("mqar asks a random part of the keys, or all of them evenly more than once", "[task]") {
    const auto few = compile("mqar", "{length: 64, pairs: 8, queries: 2}");
    Batch batch = generate(*few, first_examples(400));
    std::vector<int> by_place(8);
    for (std::size_t r = 0; r < 400; ++r) {
        const auto tokens = row(batch, *few, r);
        for (std::size_t q = 0; q < 2; ++q) {
            const std::int64_t key = tokens[static_cast<std::size_t>(batch.positions[2 * r + q])];
            ++by_place[static_cast<std::size_t>(std::find(tokens.begin(), tokens.end(), key) - tokens.begin()) / 2];
        }
    }
    for (const int hits : by_place) CHECK(hits > 60);  // 100 each

    const auto many = compile("mqar", "{length: 64, pairs: 4, queries: 12}");
    batch = generate(*many, first_examples(50));
    for (std::size_t r = 0; r < 50; ++r) {
        std::map<std::int64_t, int> times;
        for (std::size_t q = 0; q < 12; ++q) ++times[batch.targets[12 * r + q]];
        CHECK(times.size() == 4);
        for (const auto& [target, n] : times) CHECK(n == 3);
    }
}

TEST_CASE("overwrite: exact numbers of changes, at random places", "[task]") {
    const auto program = compile("overwrite", "{length: 128, pairs: 8, overwrites: 0..3, updated: 0.5}");
    CHECK(program->shape().writes == 8 + 0 + 1 + 2 + 3);
    CHECK(program->shape().max_overwrites == 3);
    const Batch batch = generate(*program, first_examples(500));
    std::vector<double> changes_by_query(8);
    for (std::size_t r = 0; r < 500; ++r) {
        std::vector<std::int64_t> changes(batch.overwrites.begin() + static_cast<std::ptrdiff_t>(8 * r),
                                          batch.overwrites.begin() + static_cast<std::ptrdiff_t>(8 * r + 8));
        for (std::size_t q = 0; q < 8; ++q) changes_by_query[q] += static_cast<double>(changes[q]) / 500;
        std::sort(changes.begin(), changes.end());
        CHECK(changes == std::vector<std::int64_t>{0, 0, 0, 0, 0, 1, 2, 3});
    }
    for (const double mean : changes_by_query) CHECK(mean == Approx(0.75).margin(0.2));
}

TEST_CASE("overwrite: blocked writes come block by block, interleaved ones do not", "[task]") {
    const auto in_blocks = [](const std::string& order) {
        const auto program = compile("overwrite", "{length: 64, pairs: 6, overwrites: 2, order: " + order + "}");
        const Batch batch = generate(*program, first_examples(100));
        int orderly = 0;
        for (std::size_t r = 0; r < 100; ++r) {
            auto keys = row(batch, *program, r);
            const Vocabulary& v = program->shape().vocabulary;
            std::erase_if(keys, [&](std::int64_t token) { return token == 0 || token >= v.value_first; });
            REQUIRE(keys.size() == 24);  // 18 writes, 6 reads
            bool good = true;
            for (std::size_t block = 0; block < 24; block += 6)
                good &= std::set<std::int64_t>(keys.begin() + static_cast<std::ptrdiff_t>(block),
                                               keys.begin() + static_cast<std::ptrdiff_t>(block + 6))
                            .size() == 6;
            orderly += good;
        }
        return orderly;
    };
    CHECK(in_blocks("blocked") == 100);
    CHECK(in_blocks("interleaved") < 10);
}

TEST_CASE("overwrite: a distance is kept to the position and spread over the keys", "[task]") {
    for (const char* order : {"interleaved", "blocked"}) {
        const auto program =
            compile("overwrite", fmt::format("{{length: 256, pairs: 8, overwrites: 2, distance: 41..71, order: {}}}", order));
        const Batch batch = generate(*program, first_examples(300));
        for (std::size_t r = 0; r < 300; ++r) {
            std::vector<std::int64_t> distances(batch.distance.begin() + static_cast<std::ptrdiff_t>(8 * r),
                                                batch.distance.begin() + static_cast<std::ptrdiff_t>(8 * r + 8));
            std::sort(distances.begin(), distances.end());
            CHECK(distances == std::vector<std::int64_t>{43, 47, 51, 55, 59, 63, 67, 71});
        }
    }
    const auto fixed = compile("overwrite", "{length: 256, pairs: 8, distance: 99}");
    for (const std::int64_t distance : generate(*fixed, first_examples(100)).distance) CHECK(distance == 99);
    // The largest distance that compile() lets pass always finds its places: 240 examples at the very limit.
    const auto tight = compile("overwrite", "{length: 256, pairs: 16, distance: 1..101}");
    CHECK_NOTHROW(generate(*tight, first_examples(240)));
}

TEST_CASE("overwrite: reads between changes see the value of their time", "[task]") {
    const auto program = compile("overwrite", "{length: 64, pairs: 4, overwrites: 2, reads_between: 8}");
    CHECK(program->shape().queries == 12);
    const Batch batch = generate(*program, first_examples(200));
    for (std::size_t r = 0; r < 200; ++r) {
        std::map<std::int64_t, int> by_changes;
        for (std::size_t q = 0; q < 12; ++q) ++by_changes[batch.overwrites[12 * r + q]];
        CHECK(by_changes == std::map<std::int64_t, int>{{0, 4}, {1, 4}, {2, 4}});  // one read before every change, one at the end
    }
}

TEST_CASE("overwrite: revert brings the first value back, and the judge knows", "[task]") {
    const auto program = compile("overwrite", "{pairs: 4, overwrites: 3, revert: true}");
    CHECK(policy_accuracy(*program, Policy::first_of_key) == 1.0);
    CHECK(policy_accuracy(*compile("overwrite", "{pairs: 4, overwrites: 3}"), Policy::first_of_key) == 0.0);
}

TEST_CASE("overwrite: the shallow policies score what arithmetic says", "[task]") {
    const auto program = compile("overwrite", "{length: 128, pairs: 8, overwrites: 3}");
    CHECK(policy_accuracy(*program, Policy::last_written) == Approx(1.0 / 8).margin(0.02));
    CHECK(policy_accuracy(*program, Policy::random_of_key) == Approx(1.0 / 4).margin(0.03));
    CHECK(policy_accuracy(*program, Policy::random_of_row) == Approx(1.0 / 32).margin(0.02));
    CHECK(policy_accuracy(*program, Policy::majority_of_row) < 0.02);
    // A wrong answer of "some value of this key" is a stale one.
    const auto examples = first_examples(300);
    std::vector<std::int64_t> predicted(300 * 8);
    program->answer(Policy::first_of_key, 1, Stream::train, examples, predicted.data());
    CHECK(share(judge(*program, examples, predicted), Answer::stale) == 1.0);
    program->answer(Policy::last_written, 1, Stream::train, examples, predicted.data());
    CHECK(share(judge(*program, examples, predicted), Answer::other_current) == Approx(7.0 / 8).margin(0.001));
}

TEST_CASE("needle: depth is exact, needles and distractors are kept apart", "[task]") {
    const auto at_depth = [](int percent) {
        const auto program = compile("needle", fmt::format("{{length: 103, depth: {}}}", percent));  // 100 tokens of filler
        return generate(*program, first_examples(50)).distance;
    };
    CHECK(at_depth(0) == std::vector<std::int64_t>(50, 101));
    CHECK(at_depth(30) == std::vector<std::int64_t>(50, 71));
    CHECK(at_depth(100) == std::vector<std::int64_t>(50, 1));

    const auto program = compile("needle", "{length: 128, needles: 2, distractors: 14}");
    CHECK(program->shape().writes == 16);
    CHECK(program->shape().queries == 2);
    CHECK(policy_accuracy(*program, Policy::random_of_row) == Approx(1.0 / 16).margin(0.03));
    CHECK(policy_accuracy(*program, Policy::random_of_key) == 1.0);
}

TEST_CASE("needle: a repeated haystack repeats, a diverse one does not", "[task]") {
    const auto repeats = [](const std::string& filler) {
        const auto program = compile("needle", "{length: 203, depth: 100, pattern: 10, filler: " + filler + "}");
        const Batch batch = generate(*program, first_examples(20));
        int good = 0;
        for (std::size_t r = 0; r < 20; ++r) {
            const auto tokens = row(batch, *program, r);
            good += std::equal(tokens.begin(), tokens.begin() + 190, tokens.begin() + 10);
        }
        return good;
    };
    CHECK(repeats("repeated") == 20);
    CHECK(repeats("diverse") == 0);
}

TEST_CASE("options that do not fit together are explained", "[task]") {
    CHECK(message("mqar", "{length: 64, pairs: 40}") ==
          "length 64 is too short for 40 pairs and 40 queries: 2 * (pairs + queries) = 160 <= length is needed");
    CHECK(message("mqar", "{length: 64, pairs: 16}") == "no error");
    CHECK(message("mqar", "{length: 512, pairs: 64, vocabulary: 100}") ==
          "49 different keys are too few for 64 pairs, 64 are needed: raise vocabulary, keys or key_tokens");
    CHECK(message("mqar", "{length: 512, pairs: 64, vocabulary: 100, keys: 80}") ==
          "19 different values are too few for 64 pairs with values_distinct, 64 are needed: raise vocabulary, values or "
          "value_tokens");
    CHECK(message("mqar", "{length: 512, pairs: 64, vocabulary: 100, keys: 80, values_distinct: false}") == "no error");
    CHECK(message("mqar", "{vocabulary: 64, keys: 40, values: 40}") ==
          "vocabulary 64 is too small for 40 keys and 40 values: 1 + keys + values <= vocabulary is needed");
    CHECK(message("mqar", "{vocabulary: 64, values: 63}") ==
          "vocabulary 64 is too small for 1 keys and 63 values: 1 + keys + values <= vocabulary is needed");
    CHECK(message("mqar", "{length: 1024, value_tokens: 5}") ==
          "128 values in 5 tokens are more than 2147483647 combinations: lower values or value_tokens");
    CHECK(message("mqar", "{length: 1024, key_tokens: 5}") ==
          "127 keys in 5 tokens are more than 2147483647 combinations: lower keys or key_tokens");
    CHECK(message("mqar", "{filler_collides: true}") == "filler_collides: true needs filler: random");

    CHECK(message("overwrite", "{queries: 5}") == "5 queries are more than the 4 pairs: queries <= pairs is needed");
    CHECK(message("overwrite", "{reads_between: 5}") ==
          "reads_between 5 is more than the 4 changes of an example: each change has room for one read before it");
    CHECK(message("overwrite", "{pairs: 8, overwrites: 3}") ==
          "length 64 is too short for 32 writes and 8 reads of 8 pairs: 2 * (writes + reads) = 80 <= length is needed");
    CHECK(message("overwrite", "{vocabulary: 16, pairs: 4, overwrites: 3}") ==
          "8 different values are too few for 16 writes with values_distinct, 16 are needed: raise vocabulary, values or "
          "value_tokens");
    CHECK(message("overwrite", "{values: 1, values_distinct: false}") ==
          "1 different values are too few for values that change, 2 are needed: raise vocabulary, values or value_tokens");
    CHECK(message("overwrite", "{revert: true, values_distinct: false}") == "revert: true needs values_distinct: true");
    CHECK(message("overwrite", "{distance: 0..9}") == "distance 0..9 starts below 1");
    CHECK(message("overwrite", "{distance: 2}") ==
          "distance 2..2 holds no possible distance: they are 1, 3, 5, … (steps of key_tokens + value_tokens)");
    CHECK(message("overwrite", "{distance: 41}") ==
          "distance 41..41 does not fit: with these writes and reads it can be 29 at most, or raise length by 12");
    CHECK(message("overwrite", "{distance: 29}") == "no error");
    CHECK(message("overwrite", "{length: 76, distance: 41}") == "no error");
    CHECK(message("overwrite", "{length: 32, pairs: 4, distance: 1}") ==
          "no room for distance: raise length by 4 positions at least");
    CHECK(message("overwrite", "{length: 36, pairs: 4, distance: 1}") == "no error");

    CHECK(message("needle", "{queries: 2}") == "2 queries are more than the 1 needles: queries <= needles is needed");
    CHECK(message("needle", "{length: 10, needles: 3, distractors: 2}") ==
          "length 10 is too short for 3 needles, 2 distractors and 3 queries: they take 13 positions");
    CHECK(message("needle", "{needles: 3, distractors: 2, vocabulary: 8}") ==
          "3 different keys are too few for 3 needles and 2 distractors, 5 are needed: raise vocabulary, keys or key_tokens");
}

}  // namespace palimpsest
