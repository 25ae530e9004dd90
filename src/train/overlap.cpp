#include "train/overlap.h"

#include "core/error.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <span>
#include <vector>

namespace palimpsest::train {
namespace {

// So much is looked at, since whoever starts a run waits for it: a few seconds on two cores. Of fresh data, which have no end, the
// first of these examples; of fixed data all, or the first of each segment.
constexpr std::int64_t most_fresh_examples = 200'000, most_training_tokens = 30'000'000, most_held_out_tokens = 10'000'000;
// Rows that are made at a time.
constexpr std::size_t rows_at_a_time = 1024;

// How many examples of each segment are looked at: all, or as many as its share of `most_tokens` holds where there are more.
std::vector<std::int64_t> examined(const std::vector<Segment>& list, std::int64_t most_tokens) {
    const auto length = [](const Segment& segment) { return segment.program->shape().length; };
    double tokens = 0;
    for (const Segment& segment : list) tokens += static_cast<double>(segment.examples) * static_cast<double>(length(segment));
    std::vector<std::int64_t> counts;
    for (const Segment& segment : list) {
        const std::int64_t share = most_tokens / static_cast<std::int64_t>(list.size()) / length(segment);
        counts.push_back(tokens <= static_cast<double>(most_tokens) ? segment.examples
                                                                    : std::min(segment.examples, std::max<std::int64_t>(1, share)));
    }
    return counts;
}

std::uint64_t hash_row(const std::int64_t* tokens, std::int64_t length) {
    std::uint64_t hash = 0xCBF29CE484222325ull ^ static_cast<std::uint64_t>(length);
    for (std::int64_t t = 0; t < length; ++t) {
        hash = (hash ^ static_cast<std::uint64_t>(tokens[t])) * 0x9E3779B97F4A7C15ull;
        hash ^= hash >> 29;
    }
    return hash;
}

// Makes the token rows of examples and hashes them.
class Rows {
public:
    explicit Rows(int threads) : threads_(threads) {}

    // Calls use(hash) for every example.
    template <class F>
    void for_each(const Program& program, std::uint64_t seed, Stream stream, std::span<const std::uint64_t> ids, const F& use) {
        const Shape& shape = program.shape();
        for (std::size_t first = 0; first < ids.size(); first += rows_at_a_time) {
            const auto part = ids.subspan(first, std::min(rows_at_a_time, ids.size() - first));
            tokens_.resize(part.size() * static_cast<std::size_t>(shape.length));
            answers_.resize(part.size() * static_cast<std::size_t>(shape.queries * shape.vocabulary.value_tokens));
            BatchView view;
            view.tokens = tokens_.data();
            view.positions = view.targets = answers_.data();  // written twice, never read
            program.generate(seed, stream, part, view, threads_);
            for (std::size_t i = 0; i < part.size(); ++i)
                use(hash_row(&tokens_[i * static_cast<std::size_t>(shape.length)], shape.length));
        }
    }

private:
    int threads_;
    std::vector<std::int64_t> tokens_, answers_;
};

// The examples of one held-out list, as hashes.
class HeldOut {
public:
    HeldOut(Rows& rows, const std::vector<Segment>& list, std::uint64_t seed, Stream stream) {
        const std::vector<std::int64_t> counts = examined(list, most_held_out_tokens);
        for (std::size_t s = 0; s < list.size(); ++s) {
            const Segment& segment = list[s];
            lengths_.insert(segment.program->shape().length);
            for (std::int64_t first = 0; first < counts[s]; first += rows_at_a_time) {
                std::vector<std::uint64_t> ids(std::min(rows_at_a_time, static_cast<std::size_t>(counts[s] - first)));
                std::iota(ids.begin(), ids.end(), static_cast<std::uint64_t>(first));
                rows.for_each(*segment.program, seed, stream, ids, [this](std::uint64_t hash) { hashes_.push_back(hash); });
            }
        }
        std::sort(hashes_.begin(), hashes_.end());
    }

    bool has_length(std::int64_t length) const { return lengths_.count(length) != 0; }
    bool holds(std::uint64_t hash) const { return std::binary_search(hashes_.begin(), hashes_.end(), hash); }
    const std::vector<std::uint64_t>& hashes() const { return hashes_; }

private:
    std::vector<std::uint64_t> hashes_;
    std::set<std::int64_t> lengths_;
};

std::string problem(std::int64_t found, const std::string& of, const std::string& too, const std::string& task) {
    return fmt::format(
        "{} of the {} of task '{}' are {} examples too. The task has too few different examples to keep them apart: give it a "
        "larger "
        "vocabulary, more pairs or a greater length, or allow it with data.check_overlap: false",
        found, of, task, too);
}

}  // namespace

std::string overlap_problem(const RunSpec& spec, const Segments& segments, int threads) {
    if (!spec.data.check_overlap) return "";
    Rows rows(threads);
    const auto data_seed = static_cast<std::uint64_t>(spec.data.seed), seed = static_cast<std::uint64_t>(spec.seed);
    const HeldOut valid(rows, segments.valid, data_seed, Stream::valid), test(rows, segments.test, data_seed, Stream::test);

    const BatchOrder order(segments.train, spec.train, spec.data);
    const bool fixed = spec.data.mode == DataMode::fixed;
    const std::int64_t steps = fixed ? std::min(order.steps(), order.epoch_steps()) : order.steps();
    std::int64_t found = 0, examples = 0, tokens = 0;
    std::vector<std::int64_t> left = examined(segments.train, most_training_tokens);  // of fixed data
    std::int64_t all_left = std::accumulate(left.begin(), left.end(), std::int64_t{0});
    for (std::int64_t step = 0;
         step < steps && (fixed ? all_left > 0 : examples < most_fresh_examples && tokens < most_training_tokens); ++step) {
        const Turn turn = order.at(step);
        const auto segment = static_cast<std::size_t>(turn.segment);
        const Program& program = *segments.train[segment].program;
        const std::int64_t length = program.shape().length;
        if (fixed && left[segment] <= 0) continue;
        left[segment] -= turn.rows;
        all_left -= std::min(turn.rows, left[segment] + turn.rows);
        examples += turn.rows;
        if (!valid.has_length(length) && !test.has_length(length)) continue;
        tokens += turn.rows * length;
        rows.for_each(program, seed, Stream::train, order.examples(turn, seed),
                      [&](std::uint64_t hash) { found += valid.holds(hash) || test.holds(hash) ? 1 : 0; });
    }
    if (found > 0) return problem(found, fmt::format("first {} training examples", examples), "valid or test", spec.task.name);

    const auto shared =
        std::count_if(valid.hashes().begin(), valid.hashes().end(), [&](std::uint64_t hash) { return test.holds(hash); });
    if (shared > 0) return problem(shared, fmt::format("{} valid examples", valid.hashes().size()), "test", spec.task.name);
    return "";
}

std::string overlap_key(const RunSpec& spec) {
    if (!spec.data.check_overlap) return "";
    Value key = Value::map();
    for (const char* section : {"seed", "task", "data"}) key.set(section, *spec.resolved.find(section));
    return fmt::format("{} {} {} {}", spec.train.steps, spec.train.epochs, spec.train.batch, emit_flow(key));
}

}  // namespace palimpsest::train
