// The fixed words that an option may hold, read off its schema: laws over the registries turn each of them once.
#pragma once

#include "config/schema.h"

#include <sstream>
#include <string>
#include <vector>

namespace palimpsest {

// Empty for numbers, texts and lists.
inline std::vector<std::string> option_words(const Option& option) {
    if (option.type == "true or false") return {"true", "false"};
    if (option.type != "word") return {};
    std::vector<std::string> found;
    std::istringstream text(option.allowed);  // "elu | relu"
    for (std::string word; text >> word;)
        if (word != "|") found.push_back(word);
    return found;
}

}  // namespace palimpsest
