// Words for people: near misses, aligned tables, and numbers as a person reads them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace palimpsest {

// Counts insertions, deletions, replacements and swaps of neighbours (Damerau-Levenshtein distance, optimal string alignment).
std::size_t edit_distance(std::string_view, std::string_view);

// Returns the candidate that the writer of `word` most likely meant, if one is near enough: at most a third of the letters differ
// (upper and lower case are equal here), or one is the beginning of the other. Ties go to the earlier candidate.
std::optional<std::string> closest(std::string_view word, const std::vector<std::string>& candidates);

bool contains(const std::vector<std::string>& words, std::string_view word);
std::string join(const std::vector<std::string>& words, std::string_view separator);
std::string join_some(const std::vector<std::string>& words, std::size_t most);  // "a, b, …"
// Returns a line to paste into a shell, quoted where it must be, and printable whatever bytes the words hold ($'\x1b').
std::string shell_line(const std::vector<std::string>& words);
bool is_utf8(std::string_view text);
bool has_control_characters(std::string_view text);             // ASCII control characters
std::string plural(std::int64_t count, std::string_view noun);  // "1 run", "3 runs"

// Returns the columns on a terminal: the number of UTF-8 code points, not of bytes ("±" is one).
std::size_t display_width(std::string_view text);

// A `Table` prints rows under a header, with columns two blanks apart and no trailing blanks. A column whose cells are all numbers
// (or "-", or empty) is aligned to the right.
class Table {
public:
    explicit Table(std::vector<std::string> header);
    void add(std::vector<std::string> row);  // as many cells as the header
    bool empty() const { return rows_.empty(); }
    // Returns the table; every line ends with a newline. Where the table is wider than `width`, headers that are wider than their
    // column are broken at their blanks, dots and underscores. A width of 0 breaks none.
    std::string str(std::size_t width = 0) const;

private:
    std::vector<std::string> header_;
    std::vector<std::vector<std::string>> rows_;
};

// Orders words as a person does, with the numbers in them by size: seed=2 comes before seed=10, and 1e-05 before 0.001.
bool natural_less(std::string_view, std::string_view);

std::string format_duration(double seconds);   // "0:36", "1:02:03"; "?" when not finite or negative
std::string format_rate(double value);         // "34.5k", "1.20M", "512": three digits
std::string format_bytes(std::int64_t bytes);  // "512 B", "1.5 KiB", "4.7 GiB"

}  // namespace palimpsest
