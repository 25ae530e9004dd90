#include "store/best_policy.h"

namespace palimpsest {

PolicyShare& PolicyShare::operator+=(const PolicyShare& other) {
    right += other.right;
    all += other.all;
    policies.insert(other.policies.begin(), other.policies.end());
    return *this;
}

std::map<std::int64_t, PolicyShare> best_policies(const std::vector<Slice>& slices, std::size_t classes,
                                                  std::span<const std::int64_t> answers,
                                                  const std::function<bool(const Slice&)>& chosen) {
    const std::size_t table = slices.size() * classes;
    std::map<std::int64_t, PolicyShare> best;
    for (std::size_t policy = 0; table > 0 && (policy + 1) * table <= answers.size(); ++policy) {
        std::map<std::int64_t, PolicyShare> shares;
        for (std::size_t s = 0; s < slices.size(); ++s) {
            const std::int64_t* counts = &answers[policy * table + s * classes];
            if (!chosen(slices[s]) || counts[0] < 0) continue;
            PolicyShare& share = shares[slices[s].segment];
            share.right += counts[0];
            for (std::size_t c = 0; c < classes; ++c) share.all += counts[c];
            share.policies = {policy};
        }
        for (const auto& [segment, share] : shares) {
            PolicyShare& known = best[segment];
            if (known.all == 0 || share.right > known.right) known = share;
        }
    }
    return best;
}

}  // namespace palimpsest
