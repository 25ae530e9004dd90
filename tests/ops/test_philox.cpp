// core/philox.h against the generator of LibTorch, which the project does not use.
#include "support.h"

#include <ATen/core/PhiloxRNGEngine.h>

using namespace palimpsest;

TEST_CASE("Philox gives the words of at::Philox4_32", "[philox]") {
    test::Random random(5);
    for (int i = 0; i < 200; ++i) {
        const auto word = [&] {
            return (static_cast<std::uint64_t>(random.uniform() * 4294967296.0) << 32) |
                   static_cast<std::uint64_t>(random.uniform() * 4294967296.0);
        };
        const std::uint64_t key = i == 0 ? 0 : i == 1 ? ~0ull : word(), high = i == 0 ? 0 : i == 1 ? ~0ull : word();
        const std::uint64_t low = i == 0 ? 0 : i == 1 ? ~0ull : word();
        at::philox_engine peer(key, high, low);  // seed, subsequence, offset: key, high and low counter
        const Philox4 ours = philox(key, low, high);
        for (const std::uint32_t x : ours.word) CHECK(x == peer());
    }
}

TEST_CASE("Rng takes its words from consecutive blocks", "[philox]") {
    Rng rng(42, Stream::test, 7);
    at::philox_engine peer(42, 7, static_cast<std::uint64_t>(Stream::test) << 56);
    for (int i = 0; i < 40; ++i) CHECK(rng.next() == peer());
}
