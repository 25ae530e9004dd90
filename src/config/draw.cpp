// Values of sweep.random, drawn by Philox. The key is the block's seed and the key's path, the counter is the sample, so neither a
// further key nor further samples shift earlier values. The values are rounded, so that names stay short and the last bit of a
// machine's logarithm plays no part.
#include "config/schema_fields.h"
#include "config/sweep.h"
#include "core/hash.h"
#include "core/philox.h"
#include "core/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

namespace palimpsest {
namespace {

const std::vector<std::string> distributions = {"uniform", "log_uniform", "integer", "choice"};

std::uint64_t bits_of(std::uint64_t seed, const std::string& path, std::size_t sample) {
    const Philox4 block = philox(seed, sample, fnv1a(path));
    return (static_cast<std::uint64_t>(block.word[0]) << 32) | block.word[1];
}

double fraction(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }  // in [0, 1)

std::uint64_t below(std::uint64_t n, std::uint64_t bits) { return ((bits >> 32) * n) >> 32; }  // n at most 2^32

double number(const std::string& text) {
    double value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
}

// Returns the fewest decimal places that cut the range into a thousand steps.
int decimals_of(double width) {
    int decimals = 0;
    for (double steps = width; steps < 1000 && decimals < 15; steps *= 10) ++decimals;
    return decimals;
}

template <class T>
std::optional<std::pair<T, T>> ends(const Value& list, const std::string& path, const Limits& limits, Diagnostics& errors) {
    if (list.kind != Value::Kind::list || list.items.size() != 2) {
        errors.error(list.source, fmt::format("'{}' expects its two ends: [low, high]", path));
        return {};
    }
    T low{}, high{};
    const std::size_t before = errors.size();
    fields::read(low, list.items[0], path + ".0", limits, errors);
    fields::read(high, list.items[1], path + ".1", limits, errors);
    if (errors.size() != before) return {};
    if (low >= high) {
        errors.error(list.source, fmt::format("'{}' expects the lower end first, then a higher one", path));
        return {};
    }
    return std::pair(low, high);
}

}  // namespace

std::vector<Value> draw_values(const Value& distribution, const std::string& path, std::int64_t samples, std::int64_t seed,
                               Diagnostics& errors) {
    const std::string place = "sweep.random.draw." + path;
    std::vector<Value> values;
    if (distribution.kind != Value::Kind::map || distribution.entries.size() != 1) {
        errors.error(distribution.source,
                     fmt::format("'{}' expects one distribution, such as {{log_uniform: [1e-4, 1e-2]}}; there are: {}", place,
                                 join(distributions, ", ")));
        return values;
    }
    const std::string& kind = distribution.entries.front().key;
    const Value& argument = distribution.entries.front().value;
    const std::string at = place + "." + kind;
    const auto draw = [&](const auto& value_of) {
        for (std::size_t i = 0; i < static_cast<std::size_t>(samples); ++i) {
            Value value = value_of(bits_of(static_cast<std::uint64_t>(seed), path, i));
            if (!value.source.text) value.source = argument.source;
            values.push_back(std::move(value));
        }
    };
    if (kind == "uniform") {
        if (const auto range = ends<double>(argument, at, {}, errors)) {
            const double low = range->first, high = range->second;
            const int decimals = decimals_of(high - low);
            if (!std::isfinite(high - low))
                errors.error(argument.source, fmt::format("'{}' spans more than a number can hold", at));
            else
                draw([&](std::uint64_t bits) {
                    const std::string text = fmt::format("{:.{}f}", low + fraction(bits) * (high - low), decimals);
                    return fields::write(std::clamp(number(text) + 0.0, low, high));  // + 0.0: no negative zero
                });
        }
    } else if (kind == "log_uniform") {
        if (const auto range = ends<double>(argument, at, above(0), errors)) {
            const double low = range->first, high = range->second;
            draw([&](std::uint64_t bits) {
                const double value = std::exp(std::log(low) + fraction(bits) * (std::log(high) - std::log(low)));
                return fields::write(std::clamp(number(fmt::format("{:.2e}", value)), low, high));
            });
        }
    } else if (kind == "integer") {
        constexpr double most = 1ll << 52;
        if (const auto range = ends<std::int64_t>(argument, at, between(-most, most), errors)) {
            const std::int64_t low = range->first, count = range->second - low + 1;
            if (count > (1ll << 32)) errors.error(argument.source, fmt::format("'{}' spans more than 2^32 values", at));
            else
                draw([&](std::uint64_t bits) {
                    return fields::write(low + static_cast<std::int64_t>(below(static_cast<std::uint64_t>(count), bits)));
                });
        }
    } else if (kind == "choice") {
        if (argument.kind != Value::Kind::list || argument.items.empty())
            errors.error(argument.source, fmt::format("'{}' expects a list of values", at));
        else draw([&](std::uint64_t bits) { return argument.items[below(argument.items.size(), bits)]; });
    } else {
        const std::string hint = did_you_mean(kind, distributions);
        errors.error(distribution.entries.front().source,
                     fmt::format("unknown distribution '{}' in '{}'{}", kind, place,
                                 hint.empty() ? "; there are: " + join(distributions, ", ") : hint));
    }
    return values;
}

}  // namespace palimpsest
