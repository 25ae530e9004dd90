// Literals, read by our own rules: a literal that can be understood in two ways is an error that says how to write one of them.
#include "config/schema_fields.h"

#include "core/text.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <regex>

namespace palimpsest::fields {
namespace {

std::string found(const Value& value) {
    switch (value.kind) {
        case Value::Kind::null: return "nothing";
        case Value::Kind::list: return "a list";
        case Value::Kind::map: return "a map";
        case Value::Kind::scalar: break;
    }
    return value.quoted ? fmt::format("the text \"{}\"", value.text) : fmt::format("'{}'", value.text);
}

// std::regex recurses once for each character, so long texts match nothing; no literal is long.
bool matches(const std::string& text, const std::regex& pattern) { return text.size() <= 64 && std::regex_match(text, pattern); }

std::string without_underscores(std::string text) {
    std::erase(text, '_');
    return text;
}

// `Parsed` holds a literal's value, or a remark that follows "got '010'": ", which is ambiguous; write 10, or 0o10 for octal".
template <class T>
struct Parsed {
    std::optional<T> value;
    std::string remark;
};

Parsed<std::int64_t> parse_digits(std::string_view digits, int base) {
    if (!digits.empty() && digits[0] == '+') digits.remove_prefix(1);
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (error == std::errc::result_out_of_range) return {{}, ", which does not fit into 64 bits"};
    if (error != std::errc() || end != digits.data() + digits.size()) return {{}, ""};
    return {value, ""};
}

// Returns a remark on a leading zero, which means octal to some readers and nothing to others.
std::optional<std::string> ambiguous_zero(const std::string& text) {
    static const std::regex leading_zero("[-+]?0[0-9]+(\\.[0-9]*)?");
    if (!matches(text, leading_zero)) return {};
    const bool negative = text[0] == '-';
    std::string digits = text.substr(text.find('0'));
    const auto first = digits.find_first_not_of('0');
    std::string decimal = first == std::string::npos ? "0" : digits.substr(first);
    if (decimal[0] == '.') decimal = "0" + decimal;
    const std::string sign = negative ? "-" : "";
    if (decimal.find_first_of(".89") != std::string::npos || decimal == "0") return ", which is ambiguous; write " + sign + decimal;
    return ", which is ambiguous; write " + sign + decimal + " or " + sign + "0o" + decimal;
}

std::optional<std::string> other_notation(const std::string& text) {
    static const std::regex hexadecimal("[-+]?0[xX][0-9a-fA-F]+"), digits_and_underscores("[-+.0-9_eE]*[0-9][-+.0-9_eE]*");
    if (matches(text, hexadecimal)) {
        std::string digits = text;
        digits.erase(digits.find_first_of("xX") - 1, 2);
        const auto value = parse_digits(digits, 16).value;
        return value ? fmt::format(", which is hexadecimal; write {}", *value) : ", which is hexadecimal; write it in decimal";
    }
    if (text.find('_') != std::string::npos && matches(text, digits_and_underscores)) return "; write " + without_underscores(text);
    return {};
}

Parsed<double> parse_number(const std::string& text) {
    static const std::regex not_finite("[-+]?\\.?(inf|Inf|INF|infinity|Infinity|nan|NaN|NAN)");
    static const std::regex number("[-+]?(\\.[0-9]+|[0-9]+(\\.[0-9]*)?)([eE][-+]?[0-9]+)?");
    if (const auto remark = ambiguous_zero(text)) return {{}, *remark};
    if (const auto remark = other_notation(text)) return {{}, *remark};
    if (matches(text, not_finite)) return {{}, "; a number must be finite"};
    if (!matches(text, number)) return {{}, ""};
    const std::size_t begin = text[0] == '+' ? 1 : 0;
    double value = 0;
    const auto result = std::from_chars(text.data() + begin, text.data() + text.size(), value);
    if (result.ec == std::errc::result_out_of_range) return {{}, ", which a 64-bit number cannot hold"};
    return {value == 0 ? 0.0 : value, ""};  // no negative zero: it would be written, and hashed, as another value
}

Parsed<std::int64_t> parse_integer(const std::string& text) {
    static const std::regex decimal("[-+]?[0-9]+"), octal("[-+]?0o[0-7]+");
    if (const auto remark = ambiguous_zero(text)) return {{}, *remark};
    if (const auto remark = other_notation(text)) return {{}, *remark};
    if (matches(text, decimal)) return parse_digits(text, 10);
    if (matches(text, octal)) {
        std::string digits = text;
        digits.erase(digits.find('o') - 1, 2);
        return parse_digits(digits, 8);
    }
    const auto number = parse_number(text).value;  // the remark on 1e3 or 1.0 names the integer
    if (number && *number == std::floor(*number) && std::abs(*number) < 9e15)
        return {{}, fmt::format("; write {}", static_cast<std::int64_t>(*number))};
    return {{}, ""};
}

void wrong(const Value& value, std::string_view path, std::string_view expected, std::string_view remark, Diagnostics& errors) {
    errors.error(value.source, fmt::format("'{}' expects {}, got {}{}", path, expected, found(value), remark));
}

// Returns the value of a plain scalar that `parse` takes; reports anything else as an error and returns nothing.
template <class T>
std::optional<T> plain(const Value& value, std::string_view path, std::string_view expected, Parsed<T> (*parse)(const std::string&),
                       Diagnostics& errors) {
    if (value.kind != Value::Kind::scalar) {
        wrong(value, path, expected, "", errors);
        return {};
    }
    const Parsed<T> parsed = parse(value.text);
    if (value.quoted) {
        wrong(value, path, expected, parsed.value ? "; write it without quotes" : "", errors);
        return {};
    }
    if (!parsed.value) wrong(value, path, expected, parsed.remark, errors);
    return parsed.value;
}

bool inside(double value, const Limits& limits) {
    return (limits.low_open ? value > limits.low : value >= limits.low) &&
           (limits.high_open ? value < limits.high : value <= limits.high);
}

template <class T>
bool check(T number, const Value& value, std::string_view path, const Limits& limits, Diagnostics& errors) {
    if (inside(static_cast<double>(number), limits)) return true;
    errors.error(value.source, fmt::format("'{}' must be {}, got {}", path, allowed(limits), value.text));
    return false;
}

Parsed<bool> parse_bool(const std::string& text) {
    static const std::regex yes("true|True|TRUE|yes|Yes|YES|on|On|ON|[yY1]"), no("false|False|FALSE|no|No|NO|off|Off|OFF|[nN0]");
    if (text == "true") return {true, ""};
    if (text == "false") return {false, ""};
    if (matches(text, yes)) return {{}, "; write true"};
    if (matches(text, no)) return {{}, "; write false"};
    return {{}, ""};
}

Parsed<Range> parse_range(const std::string& text) {
    const auto dots = text.find("..");
    const auto low = parse_integer(text.substr(0, dots));
    if (dots == std::string::npos)
        return low.value ? Parsed<Range>{Range{*low.value, *low.value}, ""} : Parsed<Range>{{}, low.remark};
    const auto high = parse_integer(text.substr(dots + 2));
    if (!low.value || !high.value) return {{}, ""};
    if (*low.value > *high.value) return {{}, fmt::format("; write the lower end first: {}..{}", *high.value, *low.value)};
    return {Range{*low.value, *high.value}, ""};
}

}  // namespace

void read(std::int64_t& out, const Value& value, std::string_view path, const Limits& limits, Diagnostics& errors) {
    const auto number = plain(value, path, "an integer", parse_integer, errors);
    if (number && check(*number, value, path, limits, errors)) out = *number;
}

void read(double& out, const Value& value, std::string_view path, const Limits& limits, Diagnostics& errors) {
    const auto number = plain(value, path, "a number", parse_number, errors);
    if (number && check(*number, value, path, limits, errors)) out = *number;
}

void read(bool& out, const Value& value, std::string_view path, const Limits&, Diagnostics& errors) {
    if (const auto flag = plain(value, path, "true or false", parse_bool, errors)) out = *flag;
}

void read(std::string& out, const Value& value, std::string_view path, const Limits&, Diagnostics& errors) {
    if (value.kind == Value::Kind::scalar) out = value.text;
    else wrong(value, path, "text", value.kind == Value::Kind::null ? "; quote it if the word itself is meant" : "", errors);
}

void read(Range& out, const Value& value, std::string_view path, const Limits& limits, Diagnostics& errors) {
    const auto range = plain(value, path, "a range such as 0..3", parse_range, errors);
    if (!range) return;
    if (check(range->low, value, path, limits, errors) && check(range->high, value, path, limits, errors)) out = *range;
}

int read_word(const Value& value, std::string_view path, const std::vector<std::string>& words, Diagnostics& errors) {
    if (value.kind == Value::Kind::scalar) {
        const auto word = std::find(words.begin(), words.end(), value.text);
        if (word != words.end()) return static_cast<int>(word - words.begin());
    }
    const std::string hint = value.kind == Value::Kind::scalar ? did_you_mean(value.text, words) : "";
    errors.error(value.source, fmt::format("'{}' expects one of {}; got {}{}", path, join(words, ", "), found(value), hint));
    return -1;
}

bool is_list(const Value& value, std::string_view path, std::string_view of, Diagnostics& errors) {
    if (value.kind == Value::Kind::list) return true;
    const std::string hint = value.kind == Value::Kind::scalar ? fmt::format("; write [{}]", value.text) : "";
    errors.error(value.source, fmt::format("'{}' expects a {}, got {}{}", path, of, found(value), hint));
    return false;
}

Value write(std::int64_t value) { return Value::scalar(fmt::format("{}", value)); }

// Writes the shortest text that reads back to the same bits. It always has a point, because PyYAML takes 1e-05 for text.
Value write(double value) {
    std::string text = fmt::format("{}", value);
    const auto exponent = text.find('e');
    if (text.find('.') == std::string::npos) text.insert(exponent == std::string::npos ? text.size() : exponent, ".0");
    return Value::scalar(text);
}

Value write(bool value) { return Value::scalar(value ? "true" : "false"); }

Value write(const std::string& value) { return Value::scalar(value, !plain_text_is_safe(value)); }

Value write(const Range& value) {
    if (value.low == value.high) return write(value.low);
    return Value::scalar(fmt::format("{}..{}", value.low, value.high));
}

std::string allowed(const Limits& limits) {
    const auto text = [](double number) { return fmt::format("{}", number); };
    const bool low = std::isfinite(limits.low), high = std::isfinite(limits.high);
    if (low && high) {
        if (!limits.low_open && !limits.high_open) return fmt::format("{} to {}", text(limits.low), text(limits.high));
        return fmt::format("{} {} and {} {}", limits.low_open ? "above" : "at least", text(limits.low),
                           limits.high_open ? "below" : "at most", text(limits.high));
    }
    if (low) return fmt::format("{} {}", limits.low_open ? "above" : "at least", text(limits.low));
    if (high) return fmt::format("{} {}", limits.high_open ? "below" : "at most", text(limits.high));
    return "";
}

std::string allowed(const std::vector<std::string>& words) { return join(words, " | "); }

void read_single(double& out, const Value& value, std::string_view path, const Limits& limits, Diagnostics& errors) {
    double number = out;
    const std::size_t before = errors.size();
    read(number, value, path, limits, errors);
    if (errors.size() != before) return;
    constexpr double least = std::numeric_limits<float>::min(), most = std::numeric_limits<float>::max();
    const double size = std::abs(number), single = size > most ? number : static_cast<double>(static_cast<float>(number));
    if (size != 0 && (size < least || size > most)) {
        errors.error(value.source,
                     fmt::format("'{}' is {}, but single precision holds {:.2g} to {:.2g} only{}", path, value.text, least, most,
                                 size < least && limits.low <= 0 && !limits.low_open ? "; write 0 if nothing is meant" : ""));
    } else if ((limits.low_open && single <= limits.low) || (limits.high_open && single >= limits.high)) {
        errors.error(value.source, fmt::format("'{}' must be {}, got {}, which is {} in single precision", path, allowed(limits),
                                               value.text, emit_flow(write(single))));
    } else {
        out = number;
    }
}

}  // namespace palimpsest::fields
