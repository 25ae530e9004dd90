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
    // Sorted by file, line, column; each error once, however often it was met, and a hundred at most; ends with "N errors".
    // Whatever bytes a file or a message holds, what is shown is UTF-8, of a length for people, and nothing that a terminal would
    // obey.
    std::string report() const;
    void throw_if_any() const;  // Error(usage, report())

private:
    struct Entry {
        Source where;
        std::string message;
    };
    std::vector<Entry> errors_;
};

// "; did you mean 'heads'?" when one of the candidates is close (Damerau-Levenshtein), else "".
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace palimpsest
