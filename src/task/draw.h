// Random choices of tasks, with integers only, for host and device. Counts stay below 2^31.
#pragma once

#include "core/philox.h"

#include <cstdint>

namespace palimpsest {

// Returns a number uniform in [0, n).
PALIMPSEST_HD inline std::int64_t uniform(Rng& rng, std::int64_t n) { return rng.below(static_cast<std::uint32_t>(n)); }

// `RandomOrder` holds the numbers 0 … n - 1 in random order in constant memory: order(0), order(1), … sample without replacement.
class RandomOrder {
public:
    PALIMPSEST_HD RandomOrder(std::int64_t n, Rng& rng) : permutation_(static_cast<std::uint32_t>(n), rng) {}
    PALIMPSEST_HD std::int64_t operator()(std::int64_t i) const { return permutation_(static_cast<std::uint32_t>(i)); }

private:
    Permutation permutation_;
};

// `WeightedDraw` draws indices in proportion to weights that may be lowered between draws. Lowering a drawn index to 0 samples
// without replacement; lowering it by 1 makes a uniformly random order of a multiset. A Fenwick tree makes a draw O(log size),
// however skewed the weights. The sum of the weights must stay below 2^31.
class WeightedDraw {
public:
    // `tree` is memory of the caller for `size` words; weight(i) is the weight of index i.
    template <class Weight>
    PALIMPSEST_HD WeightedDraw(std::int64_t* tree, std::int64_t size, Weight weight) : tree_(tree), size_(size) {
        for (std::int64_t i = 0; i < size; ++i) tree_[i] = 0;
        for (std::int64_t i = 0; i < size; ++i) {
            const std::int64_t w = weight(i);
            total_ += w;
            tree_[i] += w;
            const std::int64_t parent = i | (i + 1);
            if (parent < size) tree_[parent] += tree_[i];
        }
        while (2 * top_ <= size_) top_ *= 2;
    }

    PALIMPSEST_HD std::int64_t total() const { return total_; }

    // Returns a drawn index. total() must not be 0.
    PALIMPSEST_HD std::int64_t draw(Rng& rng) const {
        std::int64_t rest = uniform(rng, total_), index = 0;
        for (std::int64_t step = top_; step > 0; step /= 2) {
            if (index + step <= size_ && tree_[index + step - 1] <= rest) {
                index += step;
                rest -= tree_[index - 1];
            }
        }
        return index;
    }

    PALIMPSEST_HD void lower(std::int64_t index, std::int64_t amount) {
        total_ -= amount;
        for (std::int64_t i = index; i < size_; i |= i + 1) tree_[i] -= amount;
    }

private:
    std::int64_t* tree_;  // tree_[i] sums the weights of (i & (i + 1)) … i
    std::int64_t size_, total_ = 0, top_ = 1;
};

// Spreads `count` things evenly, without chance, over low … high; thing i gets the result. Four things over 0..3 get 0, 1, 2, 3.
PALIMPSEST_HD inline std::int64_t spread(std::int64_t low, std::int64_t high, std::int64_t i, std::int64_t count) {
    return low + (2 * i + 1) * (high - low + 1) / (2 * count);
}

}  // namespace palimpsest
