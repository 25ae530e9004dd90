#include "store/answers.h"

#include "core/error.h"

#include <limits>
#include <numeric>
#include <optional>

namespace palimpsest {

std::int64_t Tally::all() const { return std::accumulate(by_class.begin(), by_class.end(), std::int64_t{0}); }

double Tally::share(std::size_t answer_class) const {
    const std::int64_t answers = all();
    if (answers == 0) return not_a_number;
    return static_cast<double>(by_class.at(answer_class)) / static_cast<double>(answers);
}

std::span<const std::int64_t> answers_at(const RunRecord& record, std::size_t row) {
    PALIMPSEST_ASSERT(row < record.eval_step.size(), "row {} of {}", row, record.eval_step.size());
    const std::size_t table = record.slices.size() * record.answer_classes.size();
    return std::span(record.answers).subspan(row * table, table);
}

double class_rate(const RunRecord& record, std::size_t row, std::int64_t split, std::size_t answer_class) {
    const auto in_split = [&](const Slice& slice) { return slice.split == split ? std::optional(true) : std::nullopt; };
    const auto tallies = tally(record.slices, answers_at(record, row), in_split);
    return tallies.empty() ? not_a_number : tallies.at(true).share(answer_class);
}

double accuracy(const RunRecord& record, std::size_t row, std::int64_t split) { return class_rate(record, row, split, 0); }

std::map<std::int64_t, PolicyShare> best_policies(const std::vector<Slice>& slices, std::size_t classes,
                                                  std::span<const std::int64_t> answers,
                                                  const std::function<bool(const Slice&)>& chosen) {
    const auto segment_of = [&](const Slice& slice) { return chosen(slice) ? std::optional(slice.segment) : std::nullopt; };
    const std::size_t table = slices.size() * classes;
    std::map<std::int64_t, PolicyShare> best;
    for (std::size_t policy = 0; table > 0 && (policy + 1) * table <= answers.size(); ++policy) {
        for (const auto& [segment, scored] : tally(slices, answers.subspan(policy * table, table), segment_of)) {
            PolicyShare& known = best[segment];
            if (known.all == 0 || scored.by_class[0] > known.right) known = {scored.by_class[0], scored.all(), {policy}};
        }
    }
    return best;
}

PolicyShare sum(const std::map<std::int64_t, PolicyShare>& segments) {
    PolicyShare total;
    for (const auto& [segment, share] : segments) {
        total.right += share.right;
        total.all += share.all;
        total.policies.insert(share.policies.begin(), share.policies.end());
    }
    return total;
}

}  // namespace palimpsest
