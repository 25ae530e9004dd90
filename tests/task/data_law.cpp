// Laws that hold for every registered task. A new task meets them with option sets made from its schema; chosen ones stand in
// support.h.
#include "source_dir.h"
#include "support.h"

#include <filesystem>
#include <set>

namespace palimpsest {
using namespace testing;

TEST_CASE("every file in tasks/ registers one task", "[task]") {
    std::vector<std::string> files;
    for (const auto& file : std::filesystem::directory_iterator(source_dir() + "/tasks"))
        if (file.path().extension() == ".cpp") files.push_back(file.path().stem().string());
    std::sort(files.begin(), files.end());
    CHECK(task_names() == files);
    for (const std::string& name : files) {
        const TaskFacts& facts = get_task(name).facts();
        CHECK(facts.name == name);
        CHECK_FALSE(facts.summary.empty());
        CHECK_FALSE(facts.paper.empty());
        CHECK_FALSE(facts.ceiling.empty());
        CHECK_FALSE(cases_of(name).empty());
        CHECK(get_task(name).schema().find("length") != nullptr);
    }
    CHECK(find_task("mqra") == nullptr);
    CHECK_THROWS_WITH(get_task("mqra"),
                      fmt::format("no task 'mqra'; did you mean 'mqar'?; the tasks are {}", fmt::join(files, ", ")));
}

TEST_CASE("every position, target and slice value is filled and in range", "[task]") {
    for (const Case& c : cases()) {
        INFO(c.name());
        const auto program = compile(c);
        const Shape& shape = program->shape();
        const Vocabulary& v = shape.vocabulary;
        CHECK(v.value_first + v.values <= v.size);
        CHECK(v.key_first + v.keys <= v.value_first);
        const Batch batch = generate(*program, first_examples(100));
        const auto within = [](const std::vector<std::int64_t>& numbers, std::int64_t low, std::int64_t high) {
            return std::all_of(numbers.begin(), numbers.end(), [&](std::int64_t n) { return n >= low && n <= high; });
        };
        CHECK(within(batch.tokens, 0, v.size - 1));
        CHECK(within(batch.positions, 0, shape.length - 1));
        CHECK(within(batch.targets, v.value_first, v.value_first + v.values - 1));
        CHECK(within(batch.distance, 1, shape.length - 1));
        CHECK(within(batch.overwrites, 0, shape.max_overwrites));
    }
}

TEST_CASE("a row depends on seed, stream and example alone", "[task]") {
    for (const Case& c : cases()) {
        INFO(c.name());
        const auto program = compile(c);
        const auto length = static_cast<std::size_t>(program->shape().length);
        const std::size_t count = std::max<std::size_t>(500, 100'000 / length);  // enough for several threads
        const auto examples = first_examples(count, 5);
        const Batch whole = generate(*program, examples);
        CHECK(generate(*program, examples, 1, Stream::train, 4) == whole);
        CHECK(generate(*program, examples, 1, Stream::train, 3) == whole);

        auto reversed = examples;
        std::reverse(reversed.begin(), reversed.end());
        const Batch backwards = generate(*program, reversed);
        for (const std::size_t row : {std::size_t{0}, count / 2, count - 1}) {
            const Batch alone = generate(*program, {examples[row]});
            const auto at = [&](const Batch& batch, std::size_t r) {
                return std::vector<std::int64_t>(batch.tokens.begin() + static_cast<std::ptrdiff_t>(r * length),
                                                 batch.tokens.begin() + static_cast<std::ptrdiff_t>((r + 1) * length));
            };
            CHECK(at(whole, row) == alone.tokens);
            CHECK(at(backwards, count - 1 - row) == alone.tokens);
        }
        CHECK(generate(*program, examples, 2) != whole);
        CHECK(generate(*program, examples, 1, Stream::test) != whole);
        CHECK(judge(*program, examples, whole.targets, 1, Stream::train, 4) == judge(*program, examples, whole.targets));
    }
}

TEST_CASE("the judge finds every target correct", "[task]") {
    for (const Case& c : cases()) {
        INFO(c.name());
        const auto program = compile(c);
        for (const Stream stream : {Stream::train, Stream::valid, Stream::test}) {
            const auto examples = first_examples(200);
            const Batch batch = generate(*program, examples, 3, stream);
            CHECK(share(judge(*program, examples, batch.targets, 3, stream)) == 1.0);
        }
    }
}

TEST_CASE("a memory that follows the tokens alone answers everything, at the distances told", "[task]") {
    for (const Case& c : cases()) {
        INFO(c.name());
        const auto program = compile(c);
        const Shape& shape = program->shape();
        const std::int64_t m = shape.vocabulary.value_tokens;
        constexpr std::size_t count = 300;
        const Batch batch = generate(*program, first_examples(count));
        std::int64_t right = 0, told = 0, no_change = 0;
        for (std::size_t row = 0; row < count; ++row) {
            TokenMemory memory(shape.vocabulary, batch.tokens.data() + row * static_cast<std::size_t>(shape.length), shape.length);
            std::int64_t earlier = -1;
            for (std::int64_t query = 0; query < shape.queries; ++query) {
                const std::size_t question = row * static_cast<std::size_t>(shape.queries) + static_cast<std::size_t>(query);
                const std::int64_t* positions = batch.positions.data() + question * static_cast<std::size_t>(m);
                const std::int64_t* targets = batch.targets.data() + question * static_cast<std::size_t>(m);
                for (std::int64_t j = 1; j < m; ++j) CHECK(positions[j] == positions[0] + j);
                const std::int64_t read = positions[0] - shape.vocabulary.key_tokens + 1;
                CHECK(read > earlier);
                earlier = read;
                memory.advance(read);
                const TokenMemory::Entry* entry = memory.find(memory.key_at(read));
                if (!entry) continue;
                right += entry->value == std::vector<std::int64_t>(targets, targets + m);
                told += batch.distance[question] == read - entry->end && batch.overwrites[question] == entry->changes;
            }
            for (std::int64_t query = 0; query < shape.queries; ++query) {
                const std::size_t question = row * static_cast<std::size_t>(shape.queries) + static_cast<std::size_t>(query);
                const std::int64_t read = batch.positions[question * static_cast<std::size_t>(m)] - shape.vocabulary.key_tokens + 1;
                if (const TokenMemory::Entry* entry = memory.find(memory.key_at(read))) no_change += entry->repeats;
            }
        }
        const auto all = static_cast<std::int64_t>(count) * shape.queries;
        if (!c.followable) continue;
        if (*c.followable) {
            CHECK(right == all);
            CHECK(told == all);
            CHECK(no_change == 0);
        } else {
            CHECK(right < all);
        }
    }
}

TEST_CASE("train, valid and test share no example", "[task]") {
    for (const std::string& task : task_names()) {
        INFO(task);
        const auto program = compile(task, "{}");
        const auto length = static_cast<std::size_t>(program->shape().length);
        std::set<std::vector<std::int64_t>> seen;
        constexpr std::size_t count = 3000;
        for (const Stream stream : {Stream::train, Stream::valid, Stream::test}) {
            const Batch batch = generate(*program, first_examples(count), 0, stream);
            for (std::size_t row = 0; row < count; ++row) {
                const auto from = batch.tokens.begin() + static_cast<std::ptrdiff_t>(row * length);
                seen.emplace(from, from + static_cast<std::ptrdiff_t>(length));
            }
        }
        CHECK(seen.size() == 3 * count);
    }
}

TEST_CASE("no shallow policy solves a task", "[task]") {
    for (const Case& c : cases()) {
        const auto program = compile(c);
        if (program->shape().queries < 2) continue;
        for (const Policy policy : get_task(c.task).facts().shallow) {
            if (!is_shallow(policy, program->shape())) continue;
            INFO(c.name() << " " << to_string(policy));
            const double accuracy = policy_accuracy(*program, policy);
            CHECK(accuracy >= 0.0);
            CHECK(accuracy <= 0.75);
        }
    }
}

TEST_CASE("a trace tells the whole example", "[task]") {
    for (const Case& c : cases()) {
        INFO(c.name());
        const auto program = compile(c);
        const auto lines = program->trace(1, Stream::train, 0);
        const auto starting = [&](const std::string& word) {
            return std::count_if(lines.begin(), lines.end(), [&](const std::string& line) { return line.starts_with(word); });
        };
        CHECK(starting("read k") == program->shape().queries);
        CHECK(starting("write k") + starting("remove k") <= program->shape().writes);
        if (c.followable) CHECK(starting("write k") == program->shape().writes);
        CHECK(starting("read") + starting("write") + starting("remove") + starting("noise") + starting("gap") ==
              static_cast<std::ptrdiff_t>(lines.size()));
    }
}

}  // namespace palimpsest
