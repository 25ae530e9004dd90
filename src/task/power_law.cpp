#include "task/power_law.h"

#include <algorithm>
#include <cmath>

namespace palimpsest {

namespace {

constexpr double ln_2 = 0x1.62e42fefa39efp-1;

// Returns log2(x) of a number x >= 1, to about 1e-15: 2 atanh((m - 1) / (m + 1)) for a mantissa m between 1/sqrt 2 and sqrt 2.
double log2_of(double x) {
    int exponent = 0;
    double m = std::frexp(x, &exponent);
    if (m < 0x1.6a09e667f3bcdp-1) {
        m *= 2;
        --exponent;
    }
    const double s = (m - 1) / (m + 1), square = s * s;
    double sum = 0;
    for (int odd = 23; odd >= 1; odd -= 2) sum = sum * square + 1.0 / odd;
    return exponent + 2 * s * sum / ln_2;
}

// Returns 2^y for y <= 0, to about 1e-15: 2^whole times the series of exp(rest ln 2) for a rest between -1/2 and 1/2.
double exp2_of(double y) {
    if (y < -1000) return 0;
    const double whole = std::floor(y + 0.5), x = (y - whole) * ln_2;
    double sum = 1;
    for (int n = 18; n >= 1; --n) sum = 1 + sum * x / n;
    return std::ldexp(sum, static_cast<int>(whole));
}

}  // namespace

std::vector<std::uint32_t> power_law(std::int64_t count, double exponent) {
    // Weights are relative to the largest one, so that nothing overflows.
    const double largest = exponent > 0 && count > 0 ? log2_of(static_cast<double>(count)) : 0;
    std::vector<double> weights;
    double sum = 0;
    for (std::int64_t i = 1; i <= count; ++i) {
        // A distance of 0 keeps the weight 1 even where the exponent is so large that the product is not finite.
        const double below = largest - log2_of(static_cast<double>(i));
        sum += weights.emplace_back(below == 0 ? 1 : exp2_of(exponent > 0 ? -exponent * below : exponent * -below));
    }
    std::vector<std::uint32_t> table;
    for (const double weight : weights)
        table.push_back(static_cast<std::uint32_t>(std::max(1.0, std::round(weight / sum * (1 << 30)))));
    return table;
}

}  // namespace palimpsest
