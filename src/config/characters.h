// Characters of UTF-8, and which of them may stand in a config as they are. Internal to this floor.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace palimpsest {

struct Character {
    char32_t code = 0;  // where the bytes are not UTF-8: the first byte
    std::size_t bytes = 1;
    bool valid = true;
};

// Returns the character that begins at byte `at`. Overlong forms, surrogates and values beyond U+10FFFF are not UTF-8.
inline Character character_at(std::string_view text, std::size_t at) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned char first = byte(at);
    if (first < 0x80) return {first, 1, true};
    const std::size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    const Character invalid{first, 1, false};
    if (first < 0xC2 || first > 0xF4 || at + bytes > text.size()) return invalid;
    char32_t code = first & (0xFFu >> (bytes + 1));
    for (std::size_t i = at + 1; i < at + bytes; ++i) {
        if ((byte(i) & 0xC0) != 0x80) return invalid;
        code = (code << 6) | (byte(i) & 0x3Fu);
    }
    const char32_t least = bytes == 4 ? 0x10000 : bytes == 3 ? 0x800 : 0x80;
    if (code < least || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return invalid;
    return {code, bytes, true};
}

inline bool is_control(char32_t code) { return code < 0x20 || (code >= 0x7F && code < 0xA0); }

// Returns whether the character is written as an escape only: YAML 1.1 (PyYAML) takes it for a line end or a mark and YAML 1.2 for
// text, or one of them cannot read it. Tabs and Unix line ends are written as they are.
inline bool must_be_escaped(char32_t code) {
    if (code == '\t' || code == '\n') return false;
    return is_control(code) || code == 0x2028 || code == 0x2029 || code == 0xFEFF || code == 0xFFFE || code == 0xFFFF;
}

// Returns the character as it is written between double quotes in YAML.
inline std::string escape(char32_t code) {
    switch (code) {
        case '\0': return "\\0";
        case '\t': return "\\t";
        case '\n': return "\\n";
        case '\r': return "\\r";
        default: break;
    }
    return code < 0x100 ? fmt::format("\\x{:02x}", static_cast<unsigned>(code))
                        : fmt::format("\\u{:04x}", static_cast<unsigned>(code));
}

// Returns the text for messages and comments: on one line, in UTF-8, without anything that a terminal would obey.
inline std::string printable(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size();) {
        const Character c = character_at(text, i);
        if (c.valid && !is_control(c.code) && !must_be_escaped(c.code)) out += text.substr(i, c.bytes);
        else out += escape(c.code);
        i += c.bytes;
    }
    return out;
}

}  // namespace palimpsest
