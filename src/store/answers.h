// Answers counted by their class over groups of slices, and the bar that a result is read against: the best shallow answers to the
// same questions.
#pragma once

#include "store/run_record.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <type_traits>
#include <vector>

namespace palimpsest {

// The answers to the questions of some slices.
struct Tally {
    std::vector<std::int64_t> by_class;  // correct ones first
    std::vector<std::size_t> slices;     // their numbers
    std::int64_t all() const;
    double share(std::size_t answer_class) const;  // NaN without answers
};

// Of a table of answers [S, C], by what `key_of` returns for a slice. Slices for which it returns nothing are left out, and those
// that were not scored (-1).
template <class KeyOf>
auto tally(const std::vector<Slice>& slices, std::span<const std::int64_t> answers, const KeyOf& key_of) {
    std::map<typename std::invoke_result_t<KeyOf, const Slice&>::value_type, Tally> groups;
    const std::size_t classes = slices.empty() ? 0 : answers.size() / slices.size();
    for (std::size_t s = 0; classes > 0 && s < slices.size(); ++s) {
        const auto key = key_of(slices[s]);
        if (!key || answers[s * classes] < 0) continue;
        Tally& group = groups[*key];
        group.slices.push_back(s);
        group.by_class.resize(classes);
        for (std::size_t c = 0; c < classes; ++c) group.by_class[c] += answers[s * classes + c];
    }
    return groups;
}

// The answers [S, C] of an evaluation.
std::span<const std::int64_t> answers_at(const RunRecord& record, std::size_t row);
// The share of one class, or of correct answers, over the slices of one split (0 valid, 1 test); NaN when there are no answers.
double class_rate(const RunRecord& record, std::size_t row, std::int64_t split, std::size_t answer_class);
double accuracy(const RunRecord& record, std::size_t row, std::int64_t split);

struct PolicyShare {
    std::int64_t right = 0, all = 0;  // answers
    std::set<std::size_t> policies;   // the best ones, by number in the record; of several segments there may be several
    double share() const { return static_cast<double>(right) / static_cast<double>(all); }
};
// In each segment the best of the policies that are a shortcut there, on the chosen slices. `answers` [policy, S, C]. Segments in
// which none was scored are absent.
std::map<std::int64_t, PolicyShare> best_policies(const std::vector<Slice>& slices, std::size_t classes,
                                                  std::span<const std::int64_t> answers,
                                                  const std::function<bool(const Slice&)>& chosen);
PolicyShare sum(const std::map<std::int64_t, PolicyShare>& segments);

}  // namespace palimpsest
