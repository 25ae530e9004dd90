#include "core/philox.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "catch.h"

using namespace palimpsest;

namespace {

// Upper 1e-6 quantile of chi-square with `freedom` degrees (Wilson and Hilferty): a fair generator passes, and ours is fixed
// anyway.
double chi_square_limit(double freedom) {
    const double z = 4.753, a = 2 / (9 * freedom);
    return freedom * std::pow(1 - a + z * std::sqrt(a), 3);
}

double chi_square(const std::vector<int>& counts) {
    const double expected = std::accumulate(counts.begin(), counts.end(), 0.0) / static_cast<double>(counts.size());
    double sum = 0;
    for (const int count : counts) sum += (count - expected) * (count - expected) / expected;
    return sum;
}

std::array<std::uint32_t, 4> words(std::uint64_t key, std::uint64_t low, std::uint64_t high) {
    const Philox4 block = philox(key, low, high);
    return {block.word[0], block.word[1], block.word[2], block.word[3]};
}

using Block = std::array<std::uint32_t, 4>;

}  // namespace

TEST_CASE("Philox gives the published values of Random123") {
    CHECK(words(0, 0, 0) == Block{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u});
    CHECK(words(~0ull, ~0ull, ~0ull) == Block{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu});
    CHECK(words(0x299f31d0a4093822ull, 0x85a308d3243f6a88ull, 0x0370734413198a2eull) ==
          Block{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u});
}

TEST_CASE("Philox gives the values of at::Philox4_32(seed, subsequence, offset)") {
    struct Case {
        std::uint64_t seed, offset, subsequence;
        Block block;
    };
    // Printed once by a program over ATen/core/PhiloxRNGEngine.h of LibTorch 2.11.
    const std::vector<Case> cases = {
        {0, 1, 0, {0xf8e4cca4u, 0x5cb200dbu, 0xb1a574ebu, 0x097eff67u}},
        {0, 0xffffffffull, 7, {0x98f08ddeu, 0x81c36864u, 0xd0e0c141u, 0x0fee70d0u}},
        {1, 0, 0, {0xe3e80670u, 0xe50a0ebcu, 0x95f222c0u, 0xb615aa27u}},
        {0x123456789abcdef0ull, 0, 7, {0xe2aedaf7u, 0x2b74fe69u, 0x9b175b0cu, 0xade5d4dbu}},
        {0x123456789abcdef0ull, 0xffffffffull, 0xfedcba9876543210ull, {0xc709cd60u, 0xaa5a42e4u, 0xd70a6e51u, 0xe042811fu}},
        {~0ull, 1, 0xfedcba9876543210ull, {0x0882664cu, 0xb192ba2du, 0x92b89f88u, 0xe2f5f417u}},
    };
    for (const Case& c : cases) CHECK(words(c.seed, c.offset, c.subsequence) == c.block);
}

TEST_CASE("Rng walks the blocks of its seed, stream and example in order") {
    Rng rng(42, Stream::test, 1000);
    for (std::uint64_t block = 0; block < 3; ++block) {
        const Block expected = words(42, (std::uint64_t{3} << 56) + block, 1000);
        for (const std::uint32_t word : expected) CHECK(rng.next() == word);
    }
}

TEST_CASE("seeds, streams and examples do not share numbers") {
    std::set<std::uint32_t> seen;
    std::size_t drawn = 0;
    for (const std::uint64_t seed : {0ull, 1ull, 2ull}) {
        for (const Stream stream : {Stream::init, Stream::train, Stream::valid, Stream::test, Stream::dropout, Stream::shuffle}) {
            for (const std::uint64_t example : {0ull, 1ull, 2ull, 1ull << 40}) {
                Rng rng(seed, stream, example);
                for (int i = 0; i < 8; ++i, ++drawn) seen.insert(rng.next());
            }
        }
    }
    // 576 draws of 2^32: a repeat by chance has probability 4e-5; a shared stream would repeat eight.
    CHECK(seen.size() == drawn);
}

TEST_CASE("below stays below and is uniform") {
    Rng rng(7, Stream::train, 0);
    for (int i = 0; i < 1000; ++i) REQUIRE(rng.below(1) == 0);
    std::uint32_t largest = 0;
    for (int i = 0; i < 1000; ++i) largest = std::max(largest, rng.below(0xffffffffu));
    CHECK(largest > 0xff000000u);
    for (const std::uint32_t n : {2u, 3u, 10u, 1000u}) {
        std::vector<int> counts(n);
        for (std::uint32_t i = 0; i < 100 * n; ++i) {
            const std::uint32_t drawn = rng.below(n);
            REQUIRE(drawn < n);
            ++counts[drawn];
        }
        CHECK(chi_square(counts) < chi_square_limit(n - 1));
        CHECK(chi_square(counts) > 0);
    }
}

TEST_CASE("Permutation is one to one on [0, n)") {
    for (const std::uint32_t n : {1u, 2u, 3u, 4u, 5u, 7u, 16u, 17u, 100u, 1000u, 1024u, 1025u, 8191u, 8192u, 65537u}) {
        for (std::uint64_t seed = 0; seed < 5; ++seed) {
            Rng rng(seed, Stream::train, n);
            const Permutation permute(n, rng);
            std::vector<bool> hit(n);
            for (std::uint32_t i = 0; i < n; ++i) {
                const std::uint32_t j = permute(i);
                REQUIRE(j < n);
                REQUIRE_FALSE(hit[j]);
                hit[j] = true;
            }
        }
    }
}

TEST_CASE("Permutation works at the largest sizes") {
    Rng rng(1, Stream::train, 0);
    const Permutation permute(0xffffffffu, rng);
    std::set<std::uint32_t> seen;
    for (std::uint32_t i = 0; i < 1000; ++i) seen.insert(permute(i));
    CHECK(seen.size() == 1000);
    CHECK(*seen.rbegin() > 0xf0000000u);
}

TEST_CASE("every order of few things is equally likely") {
    for (const std::uint32_t n : {2u, 3u, 4u, 5u, 6u, 7u}) {
        std::vector<std::uint32_t> order(n);
        std::iota(order.begin(), order.end(), 0u);
        std::vector<std::vector<std::uint32_t>> orders;
        do orders.push_back(order);
        while (std::next_permutation(order.begin(), order.end()));
        std::vector<int> counts(orders.size());
        for (std::uint64_t example = 0; example < 100 * orders.size(); ++example) {
            Rng rng(11, Stream::train, example);
            const Permutation permute(n, rng);
            for (std::uint32_t i = 0; i < n; ++i) order[i] = permute(i);
            ++counts[static_cast<std::size_t>(std::lower_bound(orders.begin(), orders.end(), order) - orders.begin())];
        }
        INFO("n = " << n);
        CHECK(chi_square(counts) < chi_square_limit(static_cast<double>(orders.size() - 1)));
    }
}

TEST_CASE("where two neighbours land is uniform and independent") {
    constexpr std::uint32_t n = 100;
    std::vector<int> first(n), step(n);
    for (std::uint64_t example = 0; example < 20000; ++example) {
        Rng rng(3, Stream::train, example);
        const Permutation permute(n, rng);
        const std::uint32_t a = permute(0), b = permute(1);
        ++first[a];
        ++step[(b + n - a) % n];
    }
    CHECK(chi_square(first) < chi_square_limit(n - 1));
    CHECK(step[0] == 0);
    step.erase(step.begin());
    CHECK(chi_square(step) < chi_square_limit(n - 2));
}
