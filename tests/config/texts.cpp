// Texts of every kind are written so that this reader and PyYAML read them back alike, and what PyYAML writes is read as it meant
// it. tests/golden/texts.yaml is what is written here; tests/python/test_texts.py holds PyYAML to it. texts_pyyaml.yaml is
// PyYAML's.
#include "config/schema_fields.h"
#include "core/file.h"
#include "errors.h"
#include "source_dir.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "catch.h"

using namespace palimpsest;

namespace {

std::string utf8(char32_t code) {
    const auto byte = [](char32_t bits) { return static_cast<char>(bits); };
    if (code < 0x80) return {byte(code)};
    if (code < 0x800) return {byte(0xC0 | code >> 6), byte(0x80 | (code & 0x3F))};
    if (code < 0x10000) return {byte(0xE0 | code >> 12), byte(0x80 | (code >> 6 & 0x3F)), byte(0x80 | (code & 0x3F))};
    return {byte(0xF0 | code >> 18), byte(0x80 | (code >> 12 & 0x3F)), byte(0x80 | (code >> 6 & 0x3F)), byte(0x80 | (code & 0x3F))};
}

std::vector<std::string> texts() {
    std::vector<std::string> all;
    std::set<std::string> seen;
    const auto add = [&](const std::string& text) {
        if (seen.insert(text).second) all.push_back(text);
    };
    std::vector<char32_t> points;
    for (char32_t code = 0; code < 0x100; ++code) points.push_back(code);
    for (const char32_t code : {0x100, 0x200B, 0x2028, 0x2029, 0xD7FF, 0xE000, 0xFEFF, 0xFFFD, 0xFFFE, 0xFFFF, 0x1F600, 0x10FFFF})
        points.push_back(code);
    for (const char32_t code : points) {
        const std::string c = utf8(code);
        add(c);
        add(fmt::format("a{}b", c));
        add(fmt::format("{}b{}", c, c));
    }
    for (const char* text :
         {"",      "null", "Null",  "NULL",  "~",   "true",   "True",    "TRUE",       "false",  "yes", "Yes",
          "no",    "on",   "Off",   "y",     "n",   "1e3",    "1.0",     "-3",         "0x10",   "010", "0o17",
          "1_000", ".inf", "-.inf", ".nan",  "inf", "0..3",   "12:30",   "2001-01-01", "---",    "...", "--- a",
          "- a",   "? a",  ": a",   "a: b",  "a:",  "a #b",   "#a",      "<<",         "!a",     "&a",  "*a",
          "%a",    "@a",   "'a'",   "\"a\"", "\\n", "\\",     "{a: b}",  "[a]",        "a, b",   "|",   ">",
          "  a",   "a  ",  "a  b",  "a\n",   "\na", "a\n\nb", "a\n b\n", "a\r\nb",     "a\t\tb", "é ß", "it's \"so\""})
        add(text);
    add(std::string(500, 'a'));
    std::string long_words;
    for (int i = 0; i < 100; ++i) long_words += "a b ";
    add(long_words);
    return all;
}

void check_texts(const Value& root) {
    const std::vector<std::string> expected = texts();
    REQUIRE(root.entries.size() == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
        INFO(i << ": " << emit_flow(root.entries[i].value));
        CHECK(root.entries[i].key == expected[i]);
        CHECK(root.entries[i].value.kind == Value::Kind::scalar);
        CHECK(root.entries[i].value.text == expected[i]);
    }
}

}  // namespace

TEST_CASE("every text is written so that it reads back, as a key and as a value", "[texts]") {
    Value root = Value::map();
    for (const std::string& text : texts()) root.entries.push_back({text, {}, fields::write(text)});
    const std::string yaml = emit_yaml(root), golden = source_dir() + "/tests/golden/texts.yaml";
    check_texts(parse_yaml("block", yaml));
    check_texts(parse_yaml("flow", emit_flow(root)));
    CHECK(parse_yaml("block", yaml).same_content(root));
    CHECK(parse_yaml("comments", emit_yaml(root, [](const std::string& path) { return path; })).same_content(root));
    const bool visible =
        std::none_of(yaml.begin(), yaml.end(), [](char c) { return (c != '\n' && c >= 0 && c < 0x20) || c == 0x7F; });
    CHECK(visible);
    if (std::getenv("PALIMPSEST_REGENERATE")) write_file_atomic(golden, yaml);
    CHECK(yaml == read_file(golden));
}

TEST_CASE("texts that PyYAML wrote are read as it meant them", "[texts]") {
    const Value all = load_yaml(source_dir() + "/tests/golden/texts_pyyaml.yaml");
    REQUIRE(all.entries.size() == 3);
    for (const Value::Entry& style : all.entries) {
        std::vector<std::string> expected = texts();
        std::erase(expected, "\n");
        REQUIRE(style.value.items.size() == expected.size());
        for (std::size_t i = 0; i < expected.size(); ++i) {
            INFO(style.key << " " << emit_flow(fields::write(expected[i])));
            CHECK(emit_flow(fields::write(style.value.items[i].text)) == emit_flow(fields::write(expected[i])));
        }
    }
}

TEST_CASE("a text of line ends alone is read from its escapes only", "[texts]") {
    for (const char* text : {"a: '\n\n  '\n", "a: \"\n\n  \"\n"})
        CHECK(first_line(yaml_error(text)) == "f.yaml:1:4: a text of line ends alone is not read so; write \"\\n\"");
    CHECK(parse_yaml("f", "a: \"\\n\"").find("a")->text == "\n");
    CHECK(parse_yaml("f", "a: &x ''").find("a")->text.empty());
}

TEST_CASE("bytes that are not UTF-8 become a mark of what was lost", "[texts]") {
    for (const char* text : {"a\xFF"
                             "b",
                             "a\xC3", "\xED\xA0\x80", "\xC0\x80", "\xF4\x90\x80\x80"}) {
        const std::string yaml = emit_yaml(fields::write(std::string(text)));
        CHECK_THAT(parse_yaml("f", "t: " + yaml).find("t")->text, ContainsSubstring("\xEF\xBF\xBD"));
    }
    CHECK(emit_flow(fields::write(std::string("a\xFF"
                                              "b"))) == "\"a\\ufffdb\"");
}

TEST_CASE("characters that two readers would read two ways are refused as they stand", "[texts]") {
    const std::pair<std::string, const char*> cases[] = {
        {"\xC2\x85", "control character U+0085 is not read as it stands; a text that is to hold it writes \\x85 in double quotes"},
        {"\xE2\x80\xA8", "character U+2028 is not read as it stands; a text that is to hold it writes \\u2028 in double quotes"},
        {"\xEF\xBB\xBF", "character U+FEFF is not read as it stands; a text that is to hold it writes \\ufeff in double quotes"},
        {"\x7F", "control character U+007F is not read as it stands; a text that is to hold it writes \\x7f in double quotes"},
        {"\xED\xA0\x80", "byte 0xed is not UTF-8"},
        {"\xC0\x80", "byte 0xc0 is not UTF-8"},
        {"\xF4\x90\x80\x80", "byte 0xf4 is not UTF-8"},
    };
    for (const auto& [text, message] : cases) {
        CHECK(first_line(yaml_error("é: a" + text + "b\n")) == "f.yaml:1:5: " + std::string(message));
        CHECK(first_line(yaml_error("a: 1\n# " + text + "\n")) == "f.yaml:2:3: " + std::string(message));
    }
}
