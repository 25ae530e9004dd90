// A parsed YAML value that remembers where it came from. yaml-cpp stays behind yaml.cpp; nobody else sees its nodes.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace palimpsest {

// A file or "<command line>", with its text, so that an error can show the line.
struct SourceText {
    std::string name;
    std::string text;
};

// 1-based. For overrides, name is "<command line>" and line is the argument's number.
struct Source {
    std::shared_ptr<const SourceText> text;
    int line = 0;
    int column = 0;
    std::string where() const;  // "configs/mqar.yaml:14:3", or "<command line>:argument 3"
};

struct Value {
    enum class Kind { null, scalar, list, map };
    struct Entry;

    Kind kind = Kind::null;
    std::string text;         // of a scalar, unquoted
    bool quoted = false;      // "8" is text, 8 is a number
    std::vector<Value> items;
    std::vector<Entry> entries;  // in file order; keys are unique
    Source source;

    const Value* find(std::string_view key) const;
    Value* find(std::string_view key);
    Value& set(std::string_view key, Value value);  // replaces or appends
    static Value scalar(std::string text, bool quoted = false);
};

struct Value::Entry {
    std::string key;
    Source source;  // of the key
    Value value;
};

// Reads a file or a text. Rejects duplicate keys, merge keys, second documents, bombs of aliases and deep nesting, each with its
// place (the whole list: config/yaml.cpp). Throws Error(usage).
Value parse_yaml(const std::string& name, const std::string& text);
Value load_yaml(const std::string& path);

// YAML that both this reader and PyYAML read back to the same values (1.0e-05, quoted "no").
std::string emit_yaml(const Value& value);

}  // namespace palimpsest
