#include "core/text.h"

#include "core/error.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <iterator>

namespace palimpsest {

std::size_t edit_distance(std::string_view a, std::string_view b) {
    // Three rows of the usual table suffice: the swap of neighbours looks two rows back.
    std::vector<std::size_t> two_back(b.size() + 1), back(b.size() + 1), row(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        two_back.swap(back);
        back.swap(row);
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t replaced = back[j - 1] + (a[i - 1] != b[j - 1] ? 1 : 0);
            row[j] = std::min({back[j] + 1, row[j - 1] + 1, replaced});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], two_back[j - 2] + 1);
        }
    }
    return row[b.size()];
}

namespace {

std::string lower(std::string_view text) {
    std::string result(text);
    for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return result;
}

// Returns whether one word begins the other and both have three letters: "gated" means "gated_delta", but "a" means nothing.
bool one_begins_the_other(std::string_view a, std::string_view b) {
    const std::size_t n = std::min(a.size(), b.size());
    return n >= 3 && a.substr(0, n) == b.substr(0, n);
}

}  // namespace

std::optional<std::string> closest(std::string_view word, const std::vector<std::string>& candidates) {
    const std::string wanted = lower(word);
    const std::string* best = nullptr;
    const std::string* begins = nullptr;
    std::size_t best_distance = 0, begins_distance = 0;
    for (const std::string& candidate : candidates) {
        const std::string name = lower(candidate);
        const std::size_t distance = edit_distance(wanted, name);
        const std::size_t longest = std::max(wanted.size(), name.size()), shortest = std::min(wanted.size(), name.size());
        const bool near = distance <= std::max<std::size_t>(1, longest / 3) && distance < shortest;
        if ((near || distance == 0) && (best == nullptr || distance < best_distance)) {
            best = &candidate;
            best_distance = distance;
        }
        if (one_begins_the_other(wanted, name) && (begins == nullptr || distance < begins_distance)) {
            begins = &candidate;
            begins_distance = distance;
        }
    }
    if (best == nullptr) best = begins;
    if (best == nullptr) return std::nullopt;
    return *best;
}

bool contains(const std::vector<std::string>& words, std::string_view word) {
    return std::find(words.begin(), words.end(), word) != words.end();
}

std::string join(const std::vector<std::string>& words, std::string_view separator) {
    return fmt::format("{}", fmt::join(words, separator));
}

std::string join_some(const std::vector<std::string>& words, std::size_t most) {
    if (words.size() <= most) return join(words, ", ");
    return join({words.begin(), words.begin() + static_cast<std::ptrdiff_t>(most)}, ", ") + ", …";
}

bool is_utf8(std::string_view text) {
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        if (byte < 0x80) continue;
        const std::size_t more = byte >= 0xF0 ? 3 : byte >= 0xE0 ? 2 : 1;
        bool good = byte >= 0xC2 && byte <= 0xF4;
        for (std::size_t k = 1; good && k <= more; ++k) good = i + k < text.size() && (text[i + k] & 0xC0) == 0x80;
        if (!good) return false;
        // The bytes are also bad where the form is longer than needed, or gives a surrogate or a value beyond the last code point.
        const auto second = static_cast<unsigned char>(text[i + 1]);
        if ((byte == 0xE0 && second < 0xA0) || (byte == 0xED && second >= 0xA0) || (byte == 0xF0 && second < 0x90) ||
            (byte == 0xF4 && second >= 0x90))
            return false;
        i += more;
    }
    return true;
}

bool has_control_characters(std::string_view text) {
    return std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; });
}

namespace {

std::string shell_word(const std::string& word) {
    const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               std::string_view("_-./=,:+@%").find(c) != std::string_view::npos;
    });
    if (plain) return word;
    if (is_utf8(word) && !has_control_characters(word)) {
        std::string quoted = "'";
        for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
        return quoted + "'";
    }
    std::string quoted = "$'";
    for (const char c : word) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '\'' || c == '\\') quoted += fmt::format("\\{}", c);
        else if (byte < 0x20 || byte >= 0x7F) quoted += fmt::format("\\x{:02x}", byte);
        else quoted += c;
    }
    return quoted + "'";
}

}  // namespace

std::string shell_line(const std::vector<std::string>& words) {
    std::vector<std::string> quoted;
    for (const std::string& word : words) quoted.push_back(shell_word(word));
    return join(quoted, " ");
}

std::string plural(std::int64_t count, std::string_view noun) { return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s"); }

std::size_t display_width(std::string_view text) {
    return static_cast<std::size_t>(
        std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

Table::Table(std::vector<std::string> header) : header_(std::move(header)) {}

void Table::add(std::vector<std::string> row) {
    PALIMPSEST_ASSERT(row.size() == header_.size(), "cells {}, columns {}", row.size(), header_.size());
    rows_.push_back(std::move(row));
}

namespace {

// Returns whether a cell begins like a number, as "0.98 ± 0.01", "34.5k", "0:36" and "12 KiB" do. Names and hashes such as "3f2a"
// should stay left, so the text after the digits must not look hexadecimal or be longer than a unit.
bool reads_as_number(const std::string& cell) {
    if (cell.empty() || cell == "-" || cell == "?" || cell == "nan" || cell == "inf" || cell == "-inf") return true;
    std::size_t i = (cell[0] == '-' || cell[0] == '+') ? 1 : 0;
    if (i == cell.size() || std::isdigit(static_cast<unsigned char>(cell[i])) == 0) return false;
    int letters = 0;
    for (; i < cell.size(); ++i) {
        const char c = cell[i];
        if (std::isalpha(static_cast<unsigned char>(c)) != 0 && ++letters > 3) return false;
        if (letters > 0 && std::isdigit(static_cast<unsigned char>(c)) != 0 && cell[i - 1] != 'e') return false;
        if (c == '/' || c == '_') return false;
    }
    return true;
}

}  // namespace

namespace {

// Breaks a header into lines of at most `width` where the lengths of its parts allow that.
std::vector<std::string> broken(const std::string& header, std::size_t width) {
    std::vector<std::string> parts = {""};
    for (const char c : header) {
        if (c != ' ') parts.back() += c;
        if (c == ' ' || c == '_' || c == '.') parts.emplace_back();
    }
    std::vector<std::string> lines = {parts.front()};
    for (std::size_t i = 1; i < parts.size(); ++i) {
        const bool blank = !lines.back().ends_with('_') && !lines.back().ends_with('.');
        const std::string longer = lines.back() + (blank ? " " : "") + parts[i];
        if (display_width(longer) <= width) lines.back() = longer;
        else lines.push_back(parts[i]);
    }
    return lines;
}

}  // namespace

std::string Table::str(std::size_t width) const {
    const std::size_t columns = header_.size();
    std::vector<std::size_t> header_width(columns), widths(columns);
    std::vector<bool> right(columns);
    std::size_t whole = 2 * (columns - 1);
    for (std::size_t c = 0; c < columns; ++c) {
        header_width[c] = display_width(header_[c]);
        right[c] = !rows_.empty();
        for (const auto& row : rows_) {
            widths[c] = std::max(widths[c], display_width(row[c]));
            right[c] = right[c] && reads_as_number(row[c]);
        }
        whole += std::max(widths[c], header_width[c]);
    }
    std::vector<std::vector<std::string>> header;  // for each column the lines of its header
    std::size_t lines = 1;
    for (std::size_t c = 0; c < columns; ++c) {
        const bool too_wide = width > 0 && whole > width && header_width[c] > widths[c];
        header.push_back(too_wide ? broken(header_[c], widths[c]) : std::vector<std::string>{header_[c]});
        for (const std::string& part : header[c]) widths[c] = std::max(widths[c], display_width(part));
        lines = std::max(lines, header[c].size());
    }
    std::string text;
    const auto add_line = [&](const auto& cell_of) {
        std::string out;
        for (std::size_t c = 0; c < columns; ++c) {
            const std::string& cell = cell_of(c);
            const std::string blanks(widths[c] - display_width(cell), ' ');
            if (c > 0) out += "  ";
            out += right[c] ? blanks + cell : cell + blanks;
        }
        out.erase(out.find_last_not_of(' ') + 1);
        text += out + '\n';
    };
    static const std::string nothing;
    for (std::size_t l = 0; l < lines; ++l)
        add_line([&](std::size_t c) -> const std::string& {  // the last line of each header stands above its column
            const std::size_t skipped = lines - header[c].size();
            return l < skipped ? nothing : header[c][l - skipped];
        });
    for (const auto& row : rows_) add_line([&](std::size_t c) -> const std::string& { return row[c]; });
    return text;
}

bool natural_less(std::string_view a, std::string_view b) {
    const auto starts_number = [](std::string_view text) { return !text.empty() && text[0] >= '0' && text[0] <= '9'; };
    while (!a.empty() && !b.empty()) {
        if (starts_number(a) && starts_number(b)) {
            double x = 0, y = 0;
            const auto end_a = std::from_chars(a.data(), a.data() + a.size(), x).ptr,
                       end_b = std::from_chars(b.data(), b.data() + b.size(), y).ptr;
            if (x != y) return x < y;
            a.remove_prefix(static_cast<std::size_t>(end_a - a.data()));
            b.remove_prefix(static_cast<std::size_t>(end_b - b.data()));
            continue;
        }
        if (a[0] != b[0]) return a[0] < b[0];
        a.remove_prefix(1);
        b.remove_prefix(1);
    }
    return a.size() < b.size();
}

std::string format_duration(double seconds) {
    if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e12) return "?";
    const auto total = static_cast<std::int64_t>(std::llround(seconds));
    const std::int64_t h = total / 3600, m = total / 60 % 60, s = total % 60;
    return h > 0 ? fmt::format("{}:{:02}:{:02}", h, m, s) : fmt::format("{}:{:02}", m, s);
}

std::string format_rate(double value) {
    if (!std::isfinite(value)) return fmt::format("{}", value);
    constexpr std::array<const char*, 5> units = {"", "k", "M", "G", "T"};
    std::size_t unit = 0;
    // The value 999.5 belongs to the next unit, because with three digits it would print as 1000.
    while (std::abs(value) >= 999.5 && unit + 1 < units.size()) {
        value /= 1000;
        ++unit;
    }
    const double size = std::abs(value);
    if (unit == 0 && value == std::round(value)) return fmt::format("{}", static_cast<std::int64_t>(value));
    return fmt::format("{:.{}f}{}", value, size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2, units[unit]);
}

std::string format_bytes(std::int64_t bytes) {
    if (bytes < 1024) return fmt::format("{} B", bytes);
    constexpr std::array<const char*, 5> units = {"KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = static_cast<double>(bytes) / 1024;
    std::size_t unit = 0;
    while (value >= 1023.95 && unit + 1 < units.size()) {
        value /= 1024;
        ++unit;
    }
    return fmt::format("{:.1f} {}", value, units[unit]);
}

}  // namespace palimpsest
