// yaml-cpp, wrapped once (0.7 on Debian 12, 0.8 on Ubuntu 24.04). This file takes its events, not its nodes: the nodes accept
// duplicate keys, lose marks when cloned, give aliases the place of their anchor and convert "no" to false. The reader rejects,
// with their place: duplicate and non-text keys, merge keys, tags, further documents, nesting beyond 64 levels, more than 100,000
// values (aliases counted each time they are used), non-UTF-8 bytes, and characters that YAML 1.1 and 1.2 read differently.
#include "config/characters.h"
#include "config/diagnostics.h"
#include "config/value.h"
#include "core/error.h"
#include "core/file.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <sstream>
#include <unordered_map>

namespace palimpsest {
namespace {

constexpr std::size_t deepest = 64, most_values = 100'000;

struct Fatal {  // ends the parse; parse() catches it
    Source where;
    std::string message;
};

// `Places` turns yaml-cpp's marks (lines and bytes from 0) into ours (lines and characters from 1).
class Places {
public:
    Places(std::shared_ptr<const SourceText> text, const std::string& yaml, int argument, int column)
        : text_(std::move(text)), yaml_(yaml), argument_(argument), column_(column) {
        for (std::size_t i = 0; i < yaml.size(); ++i)
            if (yaml[i] == '\n') starts_.push_back(i + 1);
    }

    Source at(std::size_t line, std::size_t byte) const {
        const int column = static_cast<int>(characters_before(line, byte)) + 1;
        if (argument_ == 0) return {text_, static_cast<int>(line) + 1, column};
        return {text_, argument_, line == 0 ? column_ + column - 1 : column_};
    }
    Source at(const YAML::Mark& mark) const {
        if (mark.line < 0) return at(0, 0);
        return at(static_cast<std::size_t>(mark.line), static_cast<std::size_t>(mark.column));
    }
    std::string_view rest_of_line(std::size_t line, std::size_t byte) const {
        if (line >= starts_.size()) return {};
        const std::size_t end = line + 1 < starts_.size() ? starts_[line + 1] - 1 : yaml_.size();
        const std::size_t begin = std::min(starts_[line] + byte, end);
        return std::string_view(yaml_).substr(begin, end - begin);
    }
    std::string_view rest_of_line(const YAML::Mark& mark) const {
        return mark.line < 0 ? std::string_view()
                             : rest_of_line(static_cast<std::size_t>(mark.line), static_cast<std::size_t>(mark.column));
    }
    // Returns the quoted text at the mark, from its quote on.
    std::string_view quoted(const YAML::Mark& mark) const {
        std::string_view rest =
            std::string_view(yaml_).substr(std::min(yaml_.size(), static_cast<std::size_t>(std::max(0, mark.pos))));
        if (rest.starts_with('&')) rest.remove_prefix(std::min(rest.size(), rest.find_first_of("\"'")));
        return rest.empty() || (rest[0] != '"' && rest[0] != '\'') ? std::string_view() : rest;
    }

private:
    // Counts on from the last call's place, since places are asked for in the text's order and a line may be a megabyte long.
    std::size_t characters_before(std::size_t line, std::size_t byte) const {
        if (line != last_line_ || byte < last_byte_) last_line_ = line, last_byte_ = last_characters_ = 0;
        const std::string_view more = rest_of_line(line, last_byte_).substr(0, byte - last_byte_);
        last_characters_ +=
            static_cast<std::size_t>(std::count_if(more.begin(), more.end(), [](char c) { return (c & 0xC0) != 0x80; }));
        last_byte_ += more.size();
        return last_characters_;
    }

    std::shared_ptr<const SourceText> text_;
    const std::string& yaml_;
    int argument_, column_;
    std::vector<std::size_t> starts_ = {0};
    mutable std::size_t last_line_ = 0, last_byte_ = 0, last_characters_ = 0;
};

// Returns whether the quote is closed, since yaml-cpp lets the end of the text close it.
bool quote_is_closed(std::string_view quoted) {
    for (std::size_t i = 1; i < quoted.size(); ++i) {
        const bool pair = quoted[0] == '"' ? quoted[i] == '\\' : quoted.substr(i).starts_with("''");
        if (pair) ++i;
        else if (quoted[i] == quoted[0]) return true;
    }
    return quoted.empty();
}

// Mends the escapes \N and \_ (U+0085 and U+00A0), which yaml-cpp writes as one byte each, not as UTF-8.
std::string mend_escapes(const std::string& text) {
    std::string mended;
    for (std::size_t i = 0; i < text.size();) {
        const Character c = character_at(text, i);
        if (!c.valid) mended += '\xC2';
        mended += text.substr(i, c.bytes);
        i += c.bytes;
    }
    return mended;
}

class Builder final : public YAML::EventHandler {
public:
    Builder(const Places& places, std::size_t most, Diagnostics& errors) : places_(places), most_(most), errors_(errors) {}

    Value root;  // null where the document holds nothing

    Source innermost() const { return frames_.empty() ? root.source : frames_.back().value.source; }

    void OnDocumentStart(const YAML::Mark& mark) override {
        if (++documents_ > 1) throw Fatal{places_.at(mark), "a second document is never read; keep one document in a file"};
    }
    void OnDocumentEnd() override {}

    void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
        Value value;
        const std::string_view word = places_.rest_of_line(mark);
        const bool written =
            word.starts_with('~') || word.starts_with("null") || word.starts_with("Null") || word.starts_with("NULL");
        // The mark of "lr:" with nothing after it is that of the next token; the key is a better place.
        value.source = !written && !frames_.empty() && frames_.back().has_key ? frames_.back().key_source : places_.at(mark);
        finish(std::move(value), anchor, 1, 0);
    }

    void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
        const auto found = anchors_.find(anchor);
        const Source here = places_.at(mark);
        if (found == anchors_.end()) throw Fatal{here, "this alias stands inside its own anchor"};
        if (frames_.size() + found->second.height > deepest) too_deep(here);
        count(found->second.size, here, "once its aliases are expanded");
        Value copy = found->second.value;
        copy.source = here;
        finish(std::move(copy), 0, found->second.size, found->second.height);
    }

    void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& text) override {
        const Source here = places_.at(mark);
        check_tag(tag, here);
        count(1, here, "in one config");
        const std::string_view quoted = tag == "!" ? places_.quoted(mark) : std::string_view();
        if (!quote_is_closed(quoted)) throw Fatal{here, "a quote is not closed"};
        if (text.empty() && quoted.size() > 1 && quoted[1] != quoted[0])  // yaml-cpp loses such line ends
            throw Fatal{here, "a text of line ends alone is not read so; write \"\\n\""};
        Value value = Value::scalar(mend_escapes(text), tag == "!");
        value.source = here;
        finish(std::move(value), anchor, 1, 0);
    }

    void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                         YAML::EmitterStyle::value) override {
        open(Value::list(places_.at(mark)), tag, anchor);
    }
    void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
        open(Value::map(places_.at(mark)), tag, anchor);
    }
    void OnSequenceEnd() override { close(); }
    void OnMapEnd() override { close(); }

private:
    struct Frame {
        Value value;
        YAML::anchor_t anchor = 0;
        std::size_t size = 1, height = 1;
        bool has_key = false, drop = false;  // drop: the value of a key that was reported
        std::string key;
        Source key_source;
        std::unordered_map<std::string, Source> keys;
    };
    struct Anchored {
        Value value;
        std::size_t size, height;
    };

    void too_deep(const Source& here) { throw Fatal{here, fmt::format("nested deeper than {} levels", deepest)}; }

    void count(std::size_t more, const Source& here, const char* where) {
        values_ += more;
        if (values_ > most_) throw Fatal{here, fmt::format("more than {} values {}", most_, where)};
    }

    void check_tag(const std::string& tag, const Source& here) {
        if (!tag.empty() && tag != "?" && tag != "!") errors_.error(here, "tags such as !!int are not read; write the value alone");
    }

    void open(Value value, const std::string& tag, YAML::anchor_t anchor) {
        check_tag(tag, value.source);
        if (frames_.size() >= deepest) too_deep(value.source);
        count(1, value.source, "in one config");
        Frame frame;
        frame.value = std::move(value);
        frame.anchor = anchor;
        frames_.push_back(std::move(frame));
    }

    void close() {
        Frame frame = std::move(frames_.back());
        frames_.pop_back();
        finish(std::move(frame.value), frame.anchor, frame.size, frame.height);
    }

    void finish(Value value, YAML::anchor_t anchor, std::size_t size, std::size_t height) {
        if (anchor) {
            anchored_ += size;
            if (anchored_ > most_) throw Fatal{value.source, fmt::format("more than {} values under anchors", most_)};
            anchors_[anchor] = {value, size, height};
        }
        if (frames_.empty()) {
            root = std::move(value);
            return;
        }
        Frame& frame = frames_.back();
        frame.size += size;
        frame.height = std::max(frame.height, height + 1);
        if (frame.value.kind == Value::Kind::list) frame.value.items.push_back(std::move(value));
        else if (!frame.has_key) take_key(frame, value);
        else {
            if (!frame.drop) frame.value.entries.push_back({std::move(frame.key), frame.key_source, std::move(value)});
            frame.has_key = frame.drop = false;
        }
    }

    void take_key(Frame& frame, const Value& value) {
        frame.has_key = true;
        frame.drop = true;
        frame.key_source = value.source;
        if (value.kind != Value::Kind::scalar) {
            errors_.error(value.source, "a key must be a word");
            return;
        }
        if (value.text == "<<" && !value.quoted) {
            errors_.error(value.source, "merge keys ('<<') are not read; repeat the keys, or compose files with 'base:'");
            return;
        }
        const auto [first, is_new] = frame.keys.emplace(value.text, value.source);
        if (!is_new) {
            const std::string place = first->second.line == value.source.line
                                          ? fmt::format("column {} of this line", first->second.column)
                                          : fmt::format("line {}", first->second.line);
            errors_.error(value.source, fmt::format("duplicate key '{}' in line {}; it already stands in {}", value.text,
                                                    value.source.line, place));
            return;
        }
        frame.drop = false;
        frame.key = value.text;
    }

    const Places& places_;
    const std::size_t most_;
    Diagnostics& errors_;
    std::vector<Frame> frames_;
    std::unordered_map<YAML::anchor_t, Anchored> anchors_;
    std::size_t values_ = 0, anchored_ = 0;
    int documents_ = 0;
};

// Reports a yaml-cpp error in words about the text; yaml-cpp's own messages speak of its scanner.
void report(const YAML::Exception& error, const Places& places, const Source& innermost, Diagnostics& errors) {
    const std::string& message = error.msg;
    const auto is = [&](const char* theirs) { return message.find(theirs) != std::string::npos; };
    if (is("end of map flow")) return errors.error(innermost, "this '{' is not closed");
    if (is("end of sequence flow")) return errors.error(innermost, "this '[' is not closed");
    if (error.mark.line >= 0) {
        const auto line = static_cast<std::size_t>(error.mark.line);
        const std::string_view text = places.rest_of_line(line, 0);
        const auto tab = text.substr(0, text.find_first_not_of(" \t")).find('\t');
        if (tab != std::string_view::npos)
            return errors.error(places.at(line, tab), "a tab in the indentation; indent with blanks");
    }
    const std::pair<const char*, const char*> known[] = {
        {"end of map not found", "this does not continue the map above; check the indentation, and that ': ' follows each key"},
        {"end of sequence not found", "this does not continue the list above; check the indentation"},
        {"illegal map value", "a ':' is not allowed here; check the indentation, and quote a text that holds ': '"},
        {"illegal map key", "a key is not allowed here; check the indentation"},
        {"illegal EOF in scalar", "a quote is not closed"},
        {"illegal flow end", "a ']' or '}' without its opening"},
        {"anchor is not defined", "an alias without its anchor"},
        {"illegal block entry", "a list item is not allowed here; check the indentation"},
    };
    const Source where = places.at(error.mark);
    for (const auto& [theirs, ours] : known)
        if (is(theirs)) return errors.error(where, ours);
    const std::string_view rest = places.rest_of_line(error.mark);
    if (is("unknown token") && !rest.empty())
        return errors.error(where, fmt::format("a text that begins with '{}' must be quoted", rest[0]));
    errors.error(where, message);
}

// Refuses characters that yaml-cpp must not see: it takes 0x04 and NUL for the end of the text, and guesses UTF-16.
void check_characters(const std::string& yaml, const Places& places) {
    std::size_t line = 0, start = 0;
    for (std::size_t i = 0; i < yaml.size();) {
        const Character c = character_at(yaml, i);
        const auto refuse = [&](const std::string& message) { throw Fatal{places.at(line, i - start), message}; };
        if (!c.valid) refuse(fmt::format("byte 0x{:02x} is not UTF-8", static_cast<unsigned>(c.code)));
        if (must_be_escaped(c.code))
            refuse(
                fmt::format("{}character U+{:04X} is not read as it stands; a text that is to hold it writes {} in double quotes",
                            is_control(c.code) ? "control " : "", static_cast<unsigned>(c.code), escape(c.code)));
        i += c.bytes;
        if (c.code == '\n') {
            ++line;
            start = i;
        }
    }
}

Value parse(const std::string& yaml, const Places& places, Diagnostics& errors, std::size_t most = most_values) {
    Builder builder(places, most, errors);
    builder.root.source = places.at(0, 0);
    try {
        check_characters(yaml, places);
        std::istringstream stream(yaml);
        YAML::Parser parser(stream);
        while (parser.HandleNextDocument(builder)) {
        }
        return std::move(builder.root);
    } catch (const Fatal& fatal) {
        errors.error(fatal.where, fatal.message);
    } catch (const YAML::Exception& error) {
        report(error, places, builder.innermost(), errors);
    }
    return {};
}

std::string unix_line_ends(std::string_view text) {
    if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
    std::string unix_text;
    unix_text.reserve(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '\r') unix_text += text[i];
        else if (i + 1 == text.size() || text[i + 1] != '\n') unix_text += '\n';
    }
    return unix_text;
}

Value parse_file(const std::string& name, const std::string& text, std::size_t most, Diagnostics& errors) {
    const auto source = std::make_shared<const SourceText>(SourceText{name, unix_line_ends(text)});
    const std::size_t before = errors.size();
    Value root = parse(source->text, Places(source, source->text, 0, 0), errors, most);
    return root.kind == Value::Kind::null && errors.size() == before ? Value::map(root.source) : root;
}

}  // namespace

Value parse_yaml(const std::string& name, const std::string& text, Diagnostics& errors) {
    return parse_file(name, text, most_values, errors);
}

Value parse_yaml(const std::string& name, const std::string& text) { return parse_yaml(name, text, most_values); }

Value parse_yaml(const std::string& name, const std::string& text, std::size_t most) {
    Diagnostics errors;
    Value value = parse_file(name, text, most, errors);
    errors.throw_if_any();
    return value;
}

Value load_yaml(const std::string& path) { return parse_yaml(path, read_file(path)); }

Value parse_argument(std::shared_ptr<const SourceText> text, int argument, int column, const std::string& yaml,
                     Diagnostics& errors) {
    if (yaml.find_first_not_of(" \t\n") == std::string::npos) {
        Value nothing;
        nothing.source = {std::move(text), argument, column};
        return nothing;
    }
    return parse(yaml, Places(std::move(text), yaml, argument, column), errors);
}

}  // namespace palimpsest
