// The integer weights of a power law: those of the formula, whatever the exponent, and the same bits on every machine.
#include "task/power_law.h"

#include "core/hash.h"
#include "support.h"

#include <cmath>
#include <limits>

namespace palimpsest {
using namespace testing;

TEST_CASE("weights are those of the formula", "[task]") {
    for (const double exponent : {-0.99, -3.0, -0.5, 0.0, 0.7, 2.0}) {
        const std::vector<std::uint32_t> weights = power_law(500, exponent);
        double sum = 0;
        for (int i = 1; i <= 500; ++i) sum += std::pow(i, exponent);
        for (int i = 1; i <= 500; ++i) {
            const double expected = std::max(1.0, std::pow(i, exponent) / sum * (1 << 30));
            INFO(exponent << " " << i);
            CHECK(std::abs(static_cast<double>(weights[static_cast<std::size_t>(i - 1)]) - expected) <= 0.5 + 1e-12 * expected);
        }
    }
}

TEST_CASE("no exponent turns a power law into another", "[task]") {
    constexpr std::uint32_t all = 1 << 30;
    for (const double exponent : {400.0, 1e6, 1e300, std::numeric_limits<double>::max()})
        CHECK(power_law(8, exponent) == std::vector<std::uint32_t>{1, 1, 1, 1, 1, 1, 1, all});
    for (const double exponent : {-400.0, -1e300}) CHECK(power_law(4, exponent) == std::vector<std::uint32_t>{all, 1, 1, 1});
    CHECK(power_law(4, 0) == std::vector<std::uint32_t>(4, all / 4));
    CHECK(power_law(1, 5) == std::vector<std::uint32_t>{all});
    CHECK(power_law(0, 5).empty());
    // The weight of the last of 24 slots, i ^ 999: the one before it is asked once in 10^18 times.
    const auto program = compile("mqar", "{power_a: 1000, pairs: 1, length: 50}");
    for (const std::int64_t position : generate(*program, first_examples(200)).positions) CHECK(position == 48);
}

TEST_CASE("the bits of the weights are fixed", "[task]") {
    std::uint64_t hash = fnv1a_start;
    for (const double exponent : {-0.99, -0.5, 0.3, 1.7}) {
        const std::vector<std::uint32_t> weights = power_law(10'000, exponent);
        hash = fnv1a(weights.data(), weights.size() * sizeof(weights[0]), hash);
    }
    CHECK(hash == 0x4404c09b7c767afa);
}

}  // namespace palimpsest
