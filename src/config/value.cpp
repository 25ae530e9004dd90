#include "config/value.h"

#include <fmt/format.h>

#include <algorithm>

namespace palimpsest {

std::string Source::where() const {
    if (!text) return "";
    if (text->name == "<command line>") return fmt::format("{}:argument {}", text->name, line);
    return fmt::format("{}:{}:{}", text->name, line, column);
}

const Value* Value::find(std::string_view key) const {
    const auto entry = std::find_if(entries.begin(), entries.end(), [&](const Entry& e) { return e.key == key; });
    return entry == entries.end() ? nullptr : &entry->value;
}

Value* Value::find(std::string_view key) { return const_cast<Value*>(std::as_const(*this).find(key)); }

Value& Value::set(std::string_view key, Value value) {
    if (kind != Kind::map) {
        kind = Kind::map;
        text.clear();
        items.clear();
    }
    if (Value* old = find(key)) return *old = std::move(value);
    Source source_of_key = value.source;
    entries.push_back({std::string(key), std::move(source_of_key), std::move(value)});
    return entries.back().value;
}

Value Value::scalar(std::string text, bool quoted) {
    Value value;
    value.kind = Kind::scalar;
    value.text = std::move(text);
    value.quoted = quoted;
    return value;
}

Value Value::map(Source source) {
    Value value;
    value.kind = Kind::map;
    value.source = std::move(source);
    return value;
}

Value Value::list(Source source) {
    Value value;
    value.kind = Kind::list;
    value.source = std::move(source);
    return value;
}

bool Value::same_content(const Value& other) const {
    if (kind != other.kind || text != other.text || quoted != other.quoted) return false;
    if (items.size() != other.items.size() || entries.size() != other.entries.size()) return false;
    for (std::size_t i = 0; i < items.size(); ++i)
        if (!items[i].same_content(other.items[i])) return false;
    for (std::size_t i = 0; i < entries.size(); ++i)
        if (entries[i].key != other.entries[i].key || !entries[i].value.same_content(other.entries[i].value)) return false;
    return true;
}

}  // namespace palimpsest
