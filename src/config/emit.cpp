// Writes YAML that this reader and PyYAML read back to the same values (in YAML 1.1 "no" is false and 1e-05 is text).
#include "config/characters.h"
#include "config/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace palimpsest {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Quotes a text so that UTF-8 reads back unchanged. A byte that is not UTF-8 cannot stand in YAML and becomes U+FFFD.
std::string quote(std::string_view text) {
    std::string quoted = "\"";
    for (std::size_t i = 0; i < text.size();) {
        const Character c = character_at(text, i);
        if (!c.valid) quoted += escape(0xFFFD);
        else if (c.code == '"' || c.code == '\\') quoted += fmt::format("\\{}", text[i]);
        else if (c.code == '\n' || c.code == '\t' || must_be_escaped(c.code)) quoted += escape(c.code);
        else quoted += text.substr(i, c.bytes);
        i += c.bytes;
    }
    return quoted + '"';
}

// Returns whether the text may stay plain as a number, a range, true or false. Words that YAML 1.1 converts (no, on) are text here.
bool is_literal(const std::string& text) {
    if (text == "true" || text == "false") return true;
    const auto begin = text.find_first_not_of("+-.");
    return begin != std::string::npos && is_digit(text[begin]) && std::all_of(text.begin(), text.end(), [](char c) {
               return is_letter(c) || is_digit(c) || c == '.' || c == '-' || c == '+';
           });
}

std::string scalar(const Value& value) {
    return !value.quoted && (is_literal(value.text) || plain_text_is_safe(value.text)) ? value.text : quote(value.text);
}

std::string key_text(const std::string& key) { return plain_text_is_safe(key) ? key : quote(key); }

bool on_one_line(const Value& value) {
    if (value.kind == Value::Kind::map) return value.entries.empty();
    return std::none_of(value.items.begin(), value.items.end(), [](const Value& item) {
        return item.kind == Value::Kind::map || (item.kind == Value::Kind::list && !on_one_line(item));
    });
}

class Writer {
public:
    explicit Writer(const std::function<std::string(const std::string&)>& comment) : comment_(comment) {}

    // Writes the lines of a map or list. Its first line continues `first`, the others are indented by `indent`.
    void block(const Value& value, const std::string& path, std::string first, const std::string& indent) {
        const auto put = [&](const std::string& head, const Value& child, const std::string& child_path, bool item) {
            if (on_one_line(child)) line(first + head + emit_flow(child), child_path);
            else if (item) block(child, child_path, first + head, indent + "  ");
            else {
                lines_.push_back({first + head.substr(0, head.size() - 1), ""});
                block(child, child_path, indent + "  ", indent + "  ");
            }
            first = indent;
        };
        for (const Value::Entry& entry : value.entries)
            put(key_text(entry.key) + ": ", entry.value, path.empty() ? entry.key : path + "." + entry.key, false);
        for (std::size_t i = 0; i < value.items.size(); ++i) put("- ", value.items[i], fmt::format("{}.{}", path, i), true);
    }

    void line(std::string text, const std::string& path) { lines_.push_back({std::move(text), comment_ ? comment_(path) : ""}); }

    std::string str() const {
        std::size_t width = 0;
        for (const auto& [text, comment] : lines_)
            if (text.size() <= 60) width = std::max(width, text.size());
        std::string all;
        for (const auto& [text, comment] : lines_)
            all += comment.empty() ? text + "\n" : fmt::format("{:<{}}  # {}\n", text, width, printable(comment));
        return all;
    }

private:
    const std::function<std::string(const std::string&)>& comment_;
    std::vector<std::pair<std::string, std::string>> lines_;
};

}  // namespace

bool plain_text_is_safe(std::string_view text) {
    static constexpr std::array special = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"};
    if (text.empty() || !(is_letter(text[0]) || text[0] == '_' || text[0] == '/') || text.back() == ' ') return false;
    const auto plain = [](char c) {
        return is_letter(c) || is_digit(c) || std::string_view("_-./+=%@() ").find(c) != std::string_view::npos;
    };
    if (!std::all_of(text.begin(), text.end(), plain)) return false;
    std::string lower(text);
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return std::find(special.begin(), special.end(), lower) == special.end();
}

std::string emit_flow(const Value& value) {
    std::string text;
    switch (value.kind) {
        case Value::Kind::null: return "null";
        case Value::Kind::scalar: return scalar(value);
        case Value::Kind::list:
            for (const Value& item : value.items) text += (text.empty() ? "" : ", ") + emit_flow(item);
            return "[" + text + "]";
        case Value::Kind::map:
            for (const Value::Entry& entry : value.entries)
                text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", key_text(entry.key), emit_flow(entry.value));
            return "{" + text + "}";
    }
    return text;
}

std::string emit_yaml(const Value& value, const std::function<std::string(const std::string& path)>& comment) {
    Writer writer(comment);
    if (on_one_line(value)) writer.line(emit_flow(value), "");
    else writer.block(value, "", "", "");
    return writer.str();
}

std::string emit_yaml(const Value& value) { return emit_yaml(value, {}); }

}  // namespace palimpsest
