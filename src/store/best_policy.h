// The bar that a result is read against: the best shallow answers to some questions, in each segment by the best of the policies
// that are a shortcut there.
#pragma once

#include "store/run_record.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>

namespace palimpsest {

struct PolicyShare {
    std::int64_t right = 0, all = 0;  // answers
    std::set<std::size_t> policies;   // the best ones, by number in the record; of several segments there may be several
    double share() const { return static_cast<double>(right) / static_cast<double>(all); }
    PolicyShare& operator+=(const PolicyShare& other);
};

// Of the chosen slices, by segment. `answers` [policy, S, C], correct ones first, -1 in slices where a policy was not scored.
// Segments in which none was scored are absent.
std::map<std::int64_t, PolicyShare> best_policies(const std::vector<Slice>& slices, std::size_t classes,
                                                  std::span<const std::int64_t> answers,
                                                  const std::function<bool(const Slice&)>& chosen);

}  // namespace palimpsest
