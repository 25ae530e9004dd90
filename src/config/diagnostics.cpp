#include "config/diagnostics.h"

#include "core/error.h"
#include "core/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace palimpsest {
namespace {

std::string_view line_of(const SourceText& text, int line) {
    std::string_view rest = text.text;
    for (int i = 1; i < line; ++i) {
        const auto end = rest.find('\n');
        if (end == std::string_view::npos) return {};
        rest.remove_prefix(end + 1);
    }
    return rest.substr(0, rest.find('\n'));
}

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Byte at which the 1-based character `column` begins.
std::size_t byte_of_column(std::string_view line, int column) {
    std::size_t byte = 0;
    for (int i = 1; i < column && byte < line.size(); ++i)
        do ++byte;
        while (byte < line.size() && continues_character(line[byte]));
    return byte;
}

// The word that the caret points at: a quoted text as a whole, a plain word up to what ends it.
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

std::string excerpt(const Source& where) {
    const std::string_view line = line_of(*where.text, where.line);
    if (line.empty()) return "";
    const std::size_t begin = byte_of_column(line, where.column);
    std::string under;
    for (std::size_t i = 0; i < begin; ++i)
        if (!continues_character(line[i])) under += line[i] == '\t' ? '\t' : ' ';
    under += '^';
    const std::string_view word = word_at(line, begin, where.text->name == "<command line>");
    const auto characters = std::count_if(word.begin(), word.end(), [](char c) { return !continues_character(c); });
    if (characters > 1) under += std::string(static_cast<std::size_t>(characters - 1), '~');
    const std::string number = std::to_string(where.line);
    return fmt::format("  {} | {}\n  {} | {}\n", number, line, std::string(number.size(), ' '), under);
}

}  // namespace

void Diagnostics::error(const Source& where, std::string message) { errors_.push_back({where, std::move(message)}); }

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
        if (!entry->where.text) {
            report += fmt::format("error: {}\n", entry->message);
            continue;
        }
        report += fmt::format("{}: error: {}\n{}", entry->where.where(), entry->message, excerpt(entry->where));
    }
    return report + fmt::format("{} error{}", sorted.size(), sorted.size() == 1 ? "" : "s");
}

void Diagnostics::throw_if_any() const {
    if (!empty()) throw Error(ExitCode::usage, report());
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
    const auto best = closest(word, candidates);
    if (!best) return "";
    const std::size_t distance = edit_distance(word, *best);
    std::vector<std::string> close = {fmt::format("'{}'", *best)};
    for (const std::string& candidate : candidates)  // 'beta' is as near to 'beta1' as to 'beta2'
        if (candidate != *best && edit_distance(word, candidate) == distance) close.push_back(fmt::format("'{}'", candidate));
    return fmt::format("; did you mean {}?", join(close, " or "));
}

}  // namespace palimpsest
