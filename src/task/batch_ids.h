// Which examples a batch holds. Host and device share this file, so a kernel computes the number of a row as the host does.
#pragma once

#include "core/philox.h"

#include <cstdint>

namespace palimpsest {

// A `BatchRange` is the part of a segment that one batch takes. Training segments never share draws: `segment` occupies the bits of
// an example's number above any count of examples.
struct BatchRange {
    std::uint64_t segment = 0;   // the segment's number, shifted by segment_bits
    std::uint64_t first = 0;     // place of the batch's first example in the segment
    std::uint64_t epoch = 0;     // keys the permutation, together with the segment and the lane's seed
    std::uint32_t examples = 0;  // number of examples of the segment
    bool shuffled = false;       // places go through a permutation of all examples
};
constexpr int segment_bits = 40;

// `BatchIds` gives the numbers of a batch's examples in one lane. The lane's seed keys the permutation and nothing else.
class BatchIds {
public:
    PALIMPSEST_HD BatchIds(const BatchRange& range, std::uint64_t seed)
        : range_(range), permutation_(permutation_of(range, seed)) {}

    PALIMPSEST_HD std::uint64_t operator()(std::int64_t row) const {
        const std::uint64_t place = range_.first + static_cast<std::uint64_t>(row);
        return range_.segment | (range_.shuffled ? permutation_(static_cast<std::uint32_t>(place)) : place);
    }

private:
    PALIMPSEST_HD static Permutation permutation_of(const BatchRange& range, std::uint64_t seed) {
        Rng rng(seed, Stream::shuffle, range.segment | range.epoch);
        return Permutation(range.examples, rng);
    }

    BatchRange range_;
    Permutation permutation_;
};

}  // namespace palimpsest
