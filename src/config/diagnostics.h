// All errors of a config in one pass, like a compiler: file:line:col: error: …, the line, a caret.
#pragma once

#include "config/value.h"

#include <string>
#include <string_view>
#include <vector>

namespace palimpsest {

class Diagnostics {
public:
    void error(const Source& where, std::string message);
    void add(const Diagnostics& others);
    bool empty() const { return errors_.empty(); }
    std::size_t size() const { return errors_.size(); }
    // Returns the errors sorted by file, line and column, each once, at most a hundred, then "N errors". Whatever bytes a file or a
    // message holds, the report is UTF-8, short enough to read, and holds nothing that a terminal would obey.
    std::string report() const;
    void throw_if_any() const;  // throws Error(usage, report())

private:
    struct Entry {
        Source where;
        std::string message;
    };
    std::vector<Entry> errors_;
};

// Returns "; did you mean 'heads'?" when one of the candidates is close (Damerau-Levenshtein), else "".
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace palimpsest
