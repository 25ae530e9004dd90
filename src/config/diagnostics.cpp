#include "config/diagnostics.h"

#include "config/characters.h"
#include "core/error.h"
#include "core/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace palimpsest {
namespace {

// Reports are for people: more errors help nobody, and a line or a message may be a megabyte long.
constexpr std::size_t most_shown = 100, longest_message = 600, excerpt_before = 100, excerpt_width = 160, longest_word = 100;

std::string_view line_of(const SourceText& text, int line) {
    std::string_view rest = text.text;
    for (int i = 1; i < line; ++i) {
        const auto end = rest.find('\n');
        if (end == std::string_view::npos) return {};
        rest.remove_prefix(end + 1);
    }
    return rest.substr(0, rest.find('\n'));
}

std::string printable_line(std::string_view line) {
    std::string text;
    for (std::size_t i = 0; i < line.size();) {
        const std::size_t tab = std::min(line.size(), line.find('\t', i));
        text += printable(line.substr(i, tab - i));
        if (tab < line.size()) text += '\t';
        i = tab + 1;
    }
    return text;
}

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Returns the byte at which the 1-based character `column` begins.
std::size_t byte_of_column(std::string_view line, int column) {
    std::size_t byte = 0;
    for (int i = 1; i < column && byte < line.size(); ++i) do
            ++byte;
        while (byte < line.size() && continues_character(line[byte]));
    return byte;
}

// Returns the word that the caret points at: a quoted text as a whole, a plain word up to the character that ends it.
std::string_view word_at(std::string_view line, std::size_t begin, bool argument) {
    const std::string_view rest = line.substr(begin);
    if (rest.empty()) return rest;
    if (rest[0] == '"' || rest[0] == '\'') {
        const auto end = rest.find(rest[0], 1);
        return end == std::string_view::npos ? rest : rest.substr(0, end + 1);
    }
    std::size_t end = 0;
    for (; end < rest.size(); ++end) {
        const char c = rest[end];
        if (c == ' ' || c == '\t' || c == ',' || c == '[' || c == ']' || c == '{' || c == '}') break;
        if (c == ':' && (end + 1 == rest.size() || rest[end + 1] == ' ')) break;
        if (argument && c == '=') break;
    }
    return rest.substr(0, std::max<std::size_t>(end, 1));
}

// Returns the part of a line around its byte `begin` that is shown, and makes `begin` count from there.
std::string_view window(std::string_view line, std::size_t& begin) {
    std::size_t from = begin > excerpt_before && line.size() > excerpt_width ? begin - excerpt_before : 0;
    while (from > 0 && continues_character(line[from])) --from;
    std::size_t to = std::min(line.size(), from + excerpt_width);
    while (to < line.size() && continues_character(line[to])) ++to;
    begin -= from;
    return line.substr(from, to - from);
}

std::string excerpt(const Source& where) {
    std::string_view line = line_of(*where.text, where.line);
    if (line.empty()) return "";
    std::size_t begin = byte_of_column(line, where.column);
    line = window(line, begin);
    std::string under;
    for (const char c : printable_line(line.substr(0, begin)))
        if (!continues_character(c)) under += c == '\t' ? '\t' : ' ';
    under += '^';
    const std::size_t width = display_width(printable_line(word_at(line, begin, where.text->name == "<command line>")));
    if (width > 1) under += std::string(width - 1, '~');
    const std::string number = std::to_string(where.line);
    return fmt::format("  {} | {}\n  {} | {}\n", number, printable_line(line), std::string(number.size(), ' '), under);
}

// Shortens a long message to its ends: the beginning says what is wrong, the end what would be right.
std::string shortened(std::string message) {
    if (message.size() <= longest_message) return message;
    std::size_t head = longest_message / 2, tail = message.size() - longest_message / 2;
    while (continues_character(message[head])) --head;
    while (continues_character(message[tail])) --tail;
    return message.substr(0, head) + " … " + message.substr(tail);
}

}  // namespace

void Diagnostics::error(const Source& where, std::string message) { errors_.push_back({where, shortened(printable(message))}); }

void Diagnostics::add(const Diagnostics& others) { errors_.insert(errors_.end(), others.errors_.begin(), others.errors_.end()); }

std::string Diagnostics::report() const {
    std::vector<const Entry*> sorted;
    for (const Entry& entry : errors_) sorted.push_back(&entry);
    const auto key = [](const Entry& e) {
        return std::make_tuple(e.where.text ? std::string_view(e.where.text->name) : std::string_view(), e.where.line,
                               e.where.column, std::string_view(e.message));
    };
    std::stable_sort(sorted.begin(), sorted.end(), [&](const Entry* a, const Entry* b) { return key(*a) < key(*b); });
    sorted.erase(std::unique(sorted.begin(), sorted.end(), [&](const Entry* a, const Entry* b) { return key(*a) == key(*b); }),
                 sorted.end());
    std::string report;
    for (const Entry* entry : sorted) {
        if (entry == (sorted.size() > most_shown ? sorted[most_shown] : nullptr)) break;
        if (!entry->where.text) {
            report += fmt::format("error: {}\n", entry->message);
            continue;
        }
        report += fmt::format("{}: error: {}\n{}", printable(entry->where.where()), entry->message, excerpt(entry->where));
    }
    const std::string first = sorted.size() > most_shown ? fmt::format("; these are the first {}", most_shown) : "";
    return report + fmt::format("{} error{}{}", sorted.size(), sorted.size() == 1 ? "" : "s", first);
}

void Diagnostics::throw_if_any() const {
    if (!empty()) throw Error(ExitCode::usage, report());
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
    if (word.size() > longest_word) return "";
    const auto best = closest(word, candidates);
    if (!best) return "";
    const std::size_t distance = edit_distance(word, *best);
    std::vector<std::string> close = {fmt::format("'{}'", *best)};
    for (const std::string& candidate : candidates)  // 'beta' is as near to 'beta1' as to 'beta2'
        if (candidate != *best && edit_distance(word, candidate) == distance) close.push_back(fmt::format("'{}'", candidate));
    return fmt::format("; did you mean {}?", join(close, " or "));
}

}  // namespace palimpsest
