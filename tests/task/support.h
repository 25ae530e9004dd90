// What the tests of the task floor share: option sets that cover every task, batches, and a memory that sees nothing but tokens.
#pragma once

#include "config/schema.h"
#include "core/error.h"
#include "option_words.h"
#include "task/task.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "catch.h"

namespace palimpsest::testing {

struct Case {
    std::string task, options;  // options as a YAML flow map
    std::optional<bool> followable =
        true;  // whether a last-write-wins memory over the tokens reaches 1.0, where somebody has said so
    std::string name() const { return task + " " + options; }
};

inline std::unique_ptr<Program> compile(const std::string& task, const std::string& options) {
    const AnySchema& schema = get_task(task).schema();
    const std::shared_ptr<void> object = schema.make_default();
    Diagnostics errors;
    schema.read(object.get(), parse_yaml("test", options), "task", errors);
    errors.throw_if_any();
    return get_task(task).compile(object.get());
}
inline std::unique_ptr<Program> compile(const Case& c) { return compile(c.task, c.options); }

// Option sets with pinned fingerprints.
inline const std::vector<Case>& chosen_cases() {
    static const std::vector<Case> all{
        {"mqar", "{}"},
        {"mqar", "{filler: random}"},
        {"mqar", "{length: 128, pairs: 8, vocabulary: 8192, filler: random, power_a: 1}"},
        {"mqar", "{length: 127, pairs: 9, vocabulary: 100, queries: 20, filler: random}"},
        {"mqar", "{length: 256, pairs: 64, vocabulary: 8192, filler: random}"},
        {"mqar", "{length: 96, pairs: 6, queries: 3, keys: 6, values: 40, values_distinct: false, filler: random}"},
        {"mqar", "{length: 96, pairs: 5, key_tokens: 2, value_tokens: 3, vocabulary: 20, filler: random}"},
        {"mqar", "{length: 64, pairs: 8, vocabulary: 32, filler: random, filler_collides: true}", false},
        {"overwrite", "{}"},
        {"overwrite", "{pairs: 4, overwrites: 0..3, vocabulary: 64}"},
        {"overwrite", "{length: 128, pairs: 4, overwrites: 3, reads_between: 12, filler: random}"},
        {"overwrite", "{length: 128, pairs: 8, overwrites: 1..2, order: blocked, reads_between: 5, filler: random}"},
        {"overwrite", "{length: 200, pairs: 8, updated: 0.5, overwrites: 2, distance: 21..61, filler: random}"},
        {"overwrite", "{length: 256, pairs: 8, overwrites: 0..3, distance: 1..101, order: blocked, queries: 6, reads_between: 3}"},
        {"overwrite",
         "{length: 128, pairs: 6, overwrites: 4, values_distinct: false, keys: 10, values: 3, vocabulary: 32, filler: random}"},
        {"overwrite",
         "{length: 255, pairs: 5, overwrites: 1..3, revert: true, key_tokens: 2, value_tokens: 2, vocabulary: 24, filler: random}"},
        {"overwrite",
         "{length: 255, pairs: 5, overwrites: 2, distance: 4..52, key_tokens: 1, value_tokens: 3, vocabulary: 24, filler: random}"},
        {"needle", "{}"},
        {"needle", "{length: 256, needles: 4, distractors: 12, queries: 2, depth: 25..75}"},
        {"needle", "{length: 200, needles: 3, filler: repeated, pattern: 5, key_tokens: 2, value_tokens: 4, vocabulary: 32}"},
        {"needle", "{length: 64, needles: 2, depth: 50, filler: repeated}"},
        {"needle", "{length: 20, needles: 4, vocabulary: 64}"},
    };
    return all;
}

// Option sets of a task by its schema alone: the defaults, then every switch and every fixed word at each of its other values, one
// at a time, as far as the task takes them. So a new task meets the laws before its author writes a test.
inline std::vector<Case> cases_of(const std::string& task) {
    std::vector<Case> found{{task, "{}", std::nullopt}};
    for (const Option& option : get_task(task).schema().options()) {
        for (const std::string& word : option_words(option)) {
            const Case turned{task, fmt::format("{{{}: {}}}", option.name, word), std::nullopt};
            try {
                if (word != option.default_text && compile(turned)) found.push_back(turned);
            } catch (const Error&) {  // the task refuses the word beside the other defaults
            }
        }
    }
    return found;
}

// The chosen option sets, and those of the schema for every task that has none.
inline const std::vector<Case>& cases() {
    static const std::vector<Case> all = [] {
        std::vector<Case> chosen = chosen_cases();
        for (const std::string& task : task_names()) {
            if (std::any_of(chosen.begin(), chosen.end(), [&](const Case& c) { return c.task == task; })) continue;
            for (Case& c : cases_of(task)) chosen.push_back(std::move(c));
        }
        return chosen;
    }();
    return all;
}

struct Batch {
    std::vector<std::int64_t> tokens, positions, targets, distance, overwrites;
    bool operator==(const Batch&) const = default;
};

inline std::vector<std::uint64_t> first_examples(std::size_t count, std::uint64_t from = 0) {
    std::vector<std::uint64_t> examples(count);
    std::iota(examples.begin(), examples.end(), from);
    return examples;
}

inline Batch generate(const Program& program, const std::vector<std::uint64_t>& examples, std::uint64_t seed = 1,
                      Stream stream = Stream::train, int threads = 1) {
    const Shape& shape = program.shape();
    const std::size_t count = examples.size(), questions = count * static_cast<std::size_t>(shape.queries),
                      answers = questions * static_cast<std::size_t>(shape.vocabulary.value_tokens);
    constexpr std::int64_t untouched = -7;
    Batch batch{std::vector<std::int64_t>(count * static_cast<std::size_t>(shape.length), untouched),
                std::vector<std::int64_t>(answers, untouched), std::vector<std::int64_t>(answers, untouched),
                std::vector<std::int64_t>(questions, untouched), std::vector<std::int64_t>(questions, untouched)};
    BatchView view;
    view.tokens = batch.tokens.data();
    view.positions = batch.positions.data();
    view.targets = batch.targets.data();
    view.distance = batch.distance.data();
    view.overwrites = batch.overwrites.data();
    program.generate(seed, stream, examples, view, threads);
    return batch;
}

inline std::vector<Answer> judge(const Program& program, const std::vector<std::uint64_t>& examples,
                                 const std::vector<std::int64_t>& predicted, std::uint64_t seed = 1, Stream stream = Stream::train,
                                 int threads = 1) {
    std::vector<Answer> classes(examples.size() * static_cast<std::size_t>(program.shape().queries));
    program.judge(seed, stream, examples, predicted.data(), classes.data(), threads);
    return classes;
}

inline double share(const std::vector<Answer>& classes, Answer wanted = Answer::correct) {
    return static_cast<double>(std::count(classes.begin(), classes.end(), wanted)) / static_cast<double>(classes.size());
}

inline double policy_accuracy(const Program& program, Policy policy, std::size_t count = 500) {
    const auto examples = first_examples(count);
    std::vector<std::int64_t> predicted(
        count * static_cast<std::size_t>(program.shape().queries * program.shape().vocabulary.value_tokens));
    program.answer(policy, 1, Stream::train, examples, predicted.data());
    return share(judge(program, examples, predicted));
}

// Follows one row of tokens without knowing the events: a key and then a value is a write. Independent of the sinks on purpose.
class TokenMemory {
public:
    struct Entry {
        std::vector<std::int64_t> value;
        std::int64_t end = 0, changes = 0, repeats = 0;  // repeats: writes that changed nothing
    };
    using Key = std::vector<std::int64_t>;

    TokenMemory(const Vocabulary& vocabulary, const std::int64_t* row, std::int64_t length)
        : v_(vocabulary), row_(row), length_(length) {}

    // Reads on up to position `until`, exclusive.
    void advance(std::int64_t until) {
        while (at_ < until) {
            if (!all(at_, v_.key_tokens, &TokenMemory::is_key)) {
                ++at_;
                continue;
            }
            const std::int64_t value_at = at_ + v_.key_tokens;
            if (!all(value_at, v_.value_tokens, &TokenMemory::is_value)) {
                at_ = value_at;
                continue;
            }
            const Key key(row_ + at_, row_ + value_at), value(row_ + value_at, row_ + value_at + v_.value_tokens);
            at_ = value_at + v_.value_tokens;
            const auto [entry, fresh] = facts_.try_emplace(key);
            if (!fresh && entry->second.value != value) ++entry->second.changes;
            if (!fresh && entry->second.value == value) ++entry->second.repeats;
            entry->second.value = value;
            entry->second.end = at_ - 1;
        }
    }

    const Entry* find(const Key& key) const {
        const auto found = facts_.find(key);
        return found == facts_.end() ? nullptr : &found->second;
    }
    Key key_at(std::int64_t at) const { return Key(row_ + at, row_ + at + v_.key_tokens); }

private:
    bool is_key(std::int64_t token) const { return token >= v_.key_first && token < v_.key_first + v_.keys; }
    bool is_value(std::int64_t token) const { return token >= v_.value_first && token < v_.value_first + v_.values; }
    bool all(std::int64_t from, std::int64_t count, bool (TokenMemory::*test)(std::int64_t) const) const {
        if (from + count > length_) return false;
        return std::all_of(row_ + from, row_ + from + count, [&](std::int64_t token) { return (this->*test)(token); });
    }

    const Vocabulary& v_;
    const std::int64_t* row_;
    std::int64_t length_, at_ = 0;
    std::map<Key, Entry> facts_;
};

}  // namespace palimpsest::testing
