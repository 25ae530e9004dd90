#include "config/blame.h"

#include <algorithm>
#include <cctype>

namespace palimpsest {
namespace {

// Returns the words of the message that may be names of keys: "length", "model.width", ….
std::vector<std::string> words_of(const std::string& message) {
    std::vector<std::string> words = {""};
    for (const char c : message)
        if (std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.') words.back() += c;
        else if (!words.back().empty()) words.emplace_back();
    for (std::string& word : words) word.erase(word.find_last_not_of('.') + 1);
    return words;
}

}  // namespace

Source blame(const std::string& message, const std::vector<std::string>& sections, const Value& root,
             const std::vector<Setting>& settings, const Source& otherwise) {
    const Source* named = nullptr;
    for (const std::string& word : words_of(message)) {
        std::vector<std::string> paths = {word};
        for (const std::string& section : sections) paths.push_back(section + "." + word);
        for (const std::string& path : paths) {
            const Value* value = word.empty() ? nullptr : find_path(root, path);
            if (!value || value->kind == Value::Kind::map || !value->source.text) continue;
            const bool set =
                std::any_of(settings.begin(), settings.end(), [&](const Setting& s) { return is_below(path, s.path); });
            if (set) return value->source;
            if (!named) named = &value->source;
        }
    }
    return named ? *named : otherwise;
}

}  // namespace palimpsest
