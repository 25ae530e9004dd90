// Random numbers as a function, not a state: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011)
// gives the same integers on host and device. A number depends on (seed, stream, example, index) alone.
#pragma once

#include "core/platform.h"

namespace palimpsest {

// A `Stream` is a purpose. Streams share no numbers: a new draw in one shifts no other. Results persist values: do not renumber.
enum class Stream : std::uint32_t { init = 0, train = 1, valid = 2, test = 3, dropout = 4, features = 5, shuffle = 6, policy = 7 };

struct Philox4 {
    std::uint32_t word[4];
};

// Returns one block of four words for a key of 64 and a counter of 128 bits. Bit-identical to at::Philox4_32 (tested).
PALIMPSEST_HD inline Philox4 philox(std::uint64_t key, std::uint64_t counter_low, std::uint64_t counter_high) {
    std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
    std::uint32_t c0 = static_cast<std::uint32_t>(counter_low), c1 = static_cast<std::uint32_t>(counter_low >> 32);
    std::uint32_t c2 = static_cast<std::uint32_t>(counter_high), c3 = static_cast<std::uint32_t>(counter_high >> 32);
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;
        const std::uint32_t n0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0,
                            n2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
        c1 = static_cast<std::uint32_t>(p1);
        c3 = static_cast<std::uint32_t>(p0);
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
}

// An `Rng` gives the numbers of one (seed, stream, example) in order. It can be copied and has no hidden global state.
class Rng {
public:
    PALIMPSEST_HD Rng(std::uint64_t seed, Stream stream, std::uint64_t example)
        : seed_(seed), high_(example), low_(static_cast<std::uint64_t>(stream) << 56) {}

    PALIMPSEST_HD std::uint32_t next() {
        if (used_ == 4) {
            block_ = philox(seed_, low_++, high_);
            used_ = 0;
        }
        return block_.word[used_++];
    }

    // Returns a number uniform in [0, n), n >= 1. Multiply-shift (Lemire) uses integers only; its bias is below n / 2^32.
    PALIMPSEST_HD std::uint32_t below(std::uint32_t n) {
        return static_cast<std::uint32_t>((static_cast<std::uint64_t>(next()) * n) >> 32);
    }

private:
    std::uint64_t seed_, high_, low_;
    Philox4 block_{};
    std::uint32_t used_ = 4;
};

// A `Permutation` is a keyed permutation of [0, n), for sampling without replacement in constant memory (Feistel network over the
// next power of four, cycle walking). The values at i = 0, 1, … are distinct; those at i >= m are exactly those that the first m
// did not draw. Fewer than ten rounds make some orders of five or more things measurably likelier than others. A Feistel network
// alone makes even permutations only, so a key bit decides whether 0 and 1 change places first.
class Permutation {
public:
    PALIMPSEST_HD Permutation(std::uint32_t n, Rng& rng) : n_(n) {
        while ((1ull << (2 * half_bits_)) < n) ++half_bits_;
        for (int i = 0; i < 2; ++i) key_[i] = rng.next();
    }

    PALIMPSEST_HD std::uint32_t operator()(std::uint32_t i) const {
        do i = once(i);
        while (i >= n_);
        return i;
    }

private:
    PALIMPSEST_HD std::uint32_t once(std::uint32_t x) const {
        if (x < 2) x ^= key_[0] >> 31;
        const std::uint32_t mask = (1u << half_bits_) - 1;
        std::uint32_t left = x >> half_bits_, right = x & mask;
        for (std::uint32_t round = 0; round < 10; ++round) {
            std::uint32_t f = ((right | round << 16) ^ key_[0]) * 0x7FEB352Du;
            f ^= f >> 15;
            f += key_[1];
            f *= 0x846CA68Bu;
            f ^= f >> 16;
            const std::uint32_t next = (left ^ f) & mask;
            left = right;
            right = next;
        }
        return (left << half_bits_) | right;
    }

    std::uint32_t n_, half_bits_ = 1, key_[2];
};

}  // namespace palimpsest
