// A parsed YAML value that remembers where it came from. Only yaml.cpp sees the nodes of yaml-cpp.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace palimpsest {

// A `SourceText` is a file or "<command line>" with its text, so that an error can show the line.
struct SourceText {
    std::string name;
    std::string text;
};

// A `Source` is a place, 1-based. For overrides, the name is "<command line>" and the line is the argument's number.
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
    std::string text;     // of a scalar, unquoted
    bool quoted = false;  // "8" is text, 8 is a number
    std::vector<Value> items;
    std::vector<Entry> entries;  // in file order; keys are unique
    Source source;

    const Value* find(std::string_view key) const;
    Value* find(std::string_view key);
    Value& set(std::string_view key, Value value);  // replaces or appends
    static Value scalar(std::string text, bool quoted = false);
    static Value map(Source source = {});
    static Value list(Source source = {});
    bool same_content(const Value& other) const;  // compares no places; a missing value differs from an empty map
};

struct Value::Entry {
    std::string key;
    Source source;  // of the key
    Value value;
};

class Diagnostics;

// Reads a file or a text. Duplicate keys, merge keys, second documents, bombs of aliases and deep nesting are errors with their
// places (config/yaml.cpp has the whole list). Throws Error(usage). An empty text is an empty map.
Value parse_yaml(const std::string& name, const std::string& text);
Value parse_yaml(const std::string& name, const std::string& text, std::size_t most_values);  // for a file that a program wrote
Value load_yaml(const std::string& path);
// Gathers the errors instead of throwing them. After a syntax error the result is null.
Value parse_yaml(const std::string& name, const std::string& text, Diagnostics& errors);

// Reads the YAML after the '=' of a command-line argument. `text` holds all arguments, one a line; the value begins at `column`.
Value parse_argument(std::shared_ptr<const SourceText> text, int argument, int column, const std::string& yaml,
                     Diagnostics& errors);

// Writes YAML that this reader and PyYAML read back alike (1.0e-05, quoted "no"). Maps and lists of maps are in block style.
std::string emit_yaml(const Value& value);
// Writes the same with "  # comment" after every line with a value; `comment` gets its path ("train.lr", "task.test.0.pairs").
std::string emit_yaml(const Value& value, const std::function<std::string(const std::string& path)>& comment);
std::string emit_flow(const Value& value);  // on one line

// Returns whether plain `text` reads back as this text, here and in PyYAML, in block and flow style.
bool plain_text_is_safe(std::string_view text);

}  // namespace palimpsest
