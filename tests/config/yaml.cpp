#include "config/diagnostics.h"
#include "errors.h"

#include <functional>

#include "catch.h"

using namespace palimpsest;

namespace {

std::string repeat(const std::string& text, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += text;
    return all;
}

const Value& at(const Value& value, std::string_view key) {
    const Value* found = value.find(key);
    REQUIRE(found);
    return *found;
}

}  // namespace

TEST_CASE("scalars, lists and maps with their places", "[yaml]") {
    const Value root = parse_yaml("f.yaml", "a: 1\n# comment\nb: {c: [x, \"8\"], d: 'no'}\nlast: end");
    CHECK(emit_flow(root) == "{a: 1, b: {c: [x, \"8\"], d: \"no\"}, last: end}");
    CHECK(at(root, "a").source.where() == "f.yaml:1:4");
    CHECK(root.entries[1].source.where() == "f.yaml:3:1");
    const Value& c = at(at(root, "b"), "c");
    CHECK(c.source.where() == "f.yaml:3:8");
    CHECK(c.items[1].source.where() == "f.yaml:3:12");
    CHECK_FALSE(c.items[0].quoted);
    CHECK(c.items[1].quoted);
    CHECK(at(root, "last").source.where() == "f.yaml:4:7");
}

TEST_CASE("places count characters, whatever the line ends, tabs and marks before them", "[yaml]") {
    CHECK(at(parse_yaml("f", "a: 1\r\nb: 2\r\n"), "b").source.where() == "f:2:4");
    CHECK(at(parse_yaml("f",
                        "\xEF\xBB\xBF"
                        "a: 1\n"),
             "a")
              .source.where() == "f:1:4");
    CHECK(at(at(parse_yaml("f", "é: {ü: ß, y: 2}\n"), "é"), "y").source.where() == "f:1:14");
    CHECK(at(parse_yaml("f", "a: \t1\n"), "a").source.where() == "f:1:5");
    CHECK(at(at(parse_yaml("f", "a: {\n\tb: 1}\n"), "a"), "b").source.where() == "f:2:5");
}

TEST_CASE("an alias stands at its own place", "[yaml]") {
    const Value root = parse_yaml("f", "a: &x 3\nb: *x\nm: &m {k: 1}\nn: *m\n");
    CHECK(at(root, "b").text == "3");
    CHECK(at(root, "b").source.where() == "f:2:4");
    CHECK(at(root, "n").source.where() == "f:4:4");
    CHECK(at(at(root, "n"), "k").text == "1");
}

TEST_CASE("null is told from text, and has a place", "[yaml]") {
    const Value root = parse_yaml("f", "a: ~\nb:\nc: null\nd: ''\ne: \"null\"\nf: Nothing\n");
    for (const char* key : {"a", "b", "c"}) CHECK(at(root, key).kind == Value::Kind::null);
    for (const char* key : {"d", "e", "f"}) CHECK(at(root, key).kind == Value::Kind::scalar);
    CHECK(at(root, "a").source.where() == "f:1:4");
    CHECK(at(root, "b").source.where() == "f:2:1");  // the key's: nothing else is there
    Diagnostics errors;
    const auto line = std::make_shared<const SourceText>(SourceText{"<command line>", "a=null\n"});
    for (const char* nothing : {"", " ", "~", "null", "# nothing"}) {
        INFO(nothing);
        const Value value = parse_argument(line, 1, 3, nothing, errors);
        CHECK(value.kind == Value::Kind::null);
        CHECK(value.source.where() == "<command line>:argument 1");
    }
    CHECK(errors.empty());
}

TEST_CASE("an empty text is an empty map", "[yaml]") {
    for (const char* text : {"", "\n\n", "# nothing\n", "---\n", "{}"}) {
        INFO(text);
        const Value root = parse_yaml("f", text);
        CHECK(root.kind == Value::Kind::map);
        CHECK(root.entries.empty());
    }
}

TEST_CASE("duplicate keys name both lines and are all reported", "[yaml]") {
    CHECK(yaml_error("lr: 1\nb: {x: 1, x: 2}\nlr: 3\n") ==
          "f.yaml:2:11: error: duplicate key 'x' in line 2; it already stands in column 5 of this line\n"
          "  2 | b: {x: 1, x: 2}\n"
          "    |           ^\n"
          "f.yaml:3:1: error: duplicate key 'lr' in line 3; it already stands in line 1\n"
          "  3 | lr: 3\n"
          "    | ^~\n"
          "2 errors");
    CHECK(first_line(yaml_error("ä: 1\n\"ä\": 2\n")) == "f.yaml:2:1: duplicate key 'ä' in line 2; it already stands in line 1");
}

TEST_CASE("what YAML allows and a config does not", "[yaml]") {
    const std::pair<const char*, const char*> cases[] = {
        {"a: &m {x: 1}\nb:\n  <<: *m\n",
         "f.yaml:3:3: merge keys ('<<') are not read; repeat the keys, or compose files with 'base:'"},
        {"a: 1\n---\nb: 2\n", "f.yaml:2:1: a second document is never read; keep one document in a file"},
        {"a: !!int 3\n", "f.yaml:1:4: tags such as !!int are not read; write the value alone"},
        {"? [a, b]\n: c\n", "f.yaml:1:3: a key must be a word"},
        {": 1\n", "f.yaml:1:1: a key must be a word"},
        {"a: *nope\n", "f.yaml:1:4: an alias without its anchor"},
        {"a: &a [*a]\n", "f.yaml:1:8: this alias stands inside its own anchor"},
    };
    for (const auto& [text, message] : cases) {
        INFO(text);
        CHECK(first_line(yaml_error(text)) == message);
    }
}

TEST_CASE("syntax errors say what to mend, where it is", "[yaml]") {
    const std::pair<std::string, const char*> cases[] = {
        {"\ta: 1\n", "f.yaml:1:1: a tab in the indentation; indent with blanks"},
        {"a:\n\tb: 1\n", "f.yaml:2:1: a tab in the indentation; indent with blanks"},
        {"a:\n  b: 1\n\tc: 2\n", "f.yaml:3:1: a tab in the indentation; indent with blanks"},
        {"a: [1, 2\nb: 3\n", "f.yaml:1:4: this '[' is not closed"},
        {"a:\n  - {x: 1\nb: 3\n", "f.yaml:2:5: this '{' is not closed"},
        {"é: \"abc\nb: 1\n", "f.yaml:1:4: a quote is not closed"},
        {"a: 'it''\n", "f.yaml:1:4: a quote is not closed"},
        {"a: &x \"b\n", "f.yaml:1:4: a quote is not closed"},
        {"a: b: c\n", "f.yaml:1:5: a ':' is not allowed here; check the indentation, and quote a text that holds ': '"},
        {"a: }\n", "f.yaml:1:4: a ']' or '}' without its opening"},
        {"a: @x\n", "f.yaml:1:4: a text that begins with '@' must be quoted"},
        {"a: \xff\n", "f.yaml:1:4: byte 0xff is not UTF-8"},
        {"a: b\xC3\n", "f.yaml:1:5: byte 0xc3 is not UTF-8"},
        {std::string("a: 1\0b: 2\n", 10),
         "f.yaml:1:5: control character U+0000 is not read as it stands; a text that is to hold it writes \\0 in double quotes"},
        {"a: 1\x04\nb: 2\n",
         "f.yaml:1:5: control character U+0004 is not read as it stands; a text that is to hold it writes \\x04 in double quotes"},
    };
    for (const auto& [text, message] : cases) {
        INFO(text);
        CHECK(first_line(yaml_error(text)) == message);
    }
}

TEST_CASE("deep nesting is an error, at once", "[yaml]") {
    const std::string texts[] = {repeat("[", 10'000) + repeat("]", 10'000), repeat("{a: ", 10'000) + "1" + repeat("}", 10'000),
                                 repeat("- ", 10'000) + "1", repeat("? ", 10'000) + "1"};
    for (const std::string& text : texts) {
        std::string report;
        report = yaml_error(text);
        CHECK_THAT(report, ContainsSubstring("error: nested deeper than 64 levels\n"));
    }
    CHECK(yaml_error(repeat("[", 64) + repeat("]", 64)).empty());
    std::string chain = "a0: &a0 [1]\n";  // an alias in a list in an alias in a list …
    for (int i = 1; i < 70; ++i) chain += fmt::format("a{}: &a{} [*a{}]\n", i, i, i - 1);
    CHECK(first_line(yaml_error(chain)) == "f.yaml:64:12: nested deeper than 64 levels");
}

TEST_CASE("a bomb of aliases is an error at the alias that goes too far", "[yaml]") {
    std::string bomb = "a: &a [1,1,1,1,1,1,1,1,1]\n";
    for (char c = 'b'; c <= 'i'; ++c)
        bomb += fmt::format("{}: &{} [{}]\n", c, c, repeat(fmt::format("*{}, ", static_cast<char>(c - 1)), 9));
    std::string report;
    report = yaml_error(bomb);
    CHECK(first_line(report) == "f.yaml:6:8: more than 100000 values once its aliases are expanded");
}

TEST_CASE("long lines, many nulls and nested anchors take no time and no memory", "[yaml]") {
    const std::string flow = "a: [" + repeat("é, ", 99'000) + "]\n", nulls = "a: [" + repeat("~, ", 99'000) + "]\n";
    for (const std::string& text : {flow, nulls}) CHECK(yaml_error(text).empty());
    std::string anchors;
    for (int i = 0; i < 60; ++i) anchors += fmt::format("&a{} [", i);
    const std::string text = "a: " + anchors + repeat("1, ", 5'000) + repeat("]", 60) + "\n";
    CHECK(first_line(yaml_error(text)) == "f.yaml:1:234: more than 100000 values under anchors");
}

TEST_CASE("emitted YAML reads back to the same values", "[yaml]") {
    Value root = Value::map();
    root.set("plain", Value::scalar("delta"));
    root.set("number", Value::scalar("1.0e-05"));
    root.set("range", Value::scalar("0..3"));
    int i = 0;
    for (const char* text :
         {"no",          "1e3",        "~",     "",        "null", "8",  "a: b", "x #y",       "- x",  "it's", "say \"x\"",
          "back\\slash", "two\nlines", "tab\t", " blank ", "é",    "<<", "=",    "2001-01-01", "0x10", "[a",   "a]",
          "a, b",        "{",          "*a",    "&a",      "%",    "@",  "y",    "Off",        "12:30"})
        root.set(fmt::format("t{}", i++), Value::scalar(text, true));
    Value list = Value::list();
    list.items = {Value::scalar("a"), Value::scalar("b")};
    root.set("list", list);
    Value segments = Value::list();
    segments.items = {root, root};
    root.set("segments", segments);
    root.set("empty_list", Value::list());
    root.set("empty_map", Value::map());
    CHECK(parse_yaml("f", emit_yaml(root)).same_content(root));
    CHECK(parse_yaml("f", emit_flow(root)).same_content(root));
}

TEST_CASE("emitted YAML is block style with comments in one column", "[yaml]") {
    const Value root = parse_yaml("f", "a: 1\nb: {c: [x, z], d: {}}\nlist: [{p: 1, q: 2}, {p: 3}]\n");
    CHECK(emit_yaml(root) == "a: 1\nb:\n  c: [x, z]\n  d: {}\nlist:\n  - p: 1\n    q: 2\n  - p: 3\n");
    CHECK(emit_yaml(root, [](const std::string& path) { return path; }) ==
          "a: 1         # a\nb:\n  c: [x, z]  # b.c\n  d: {}      # b.d\nlist:\n  - p: 1     # list.0.p\n    q: 2     # list.0.q\n"
          "  - p: 3     # list.1.p\n");
}

TEST_CASE("plain text that YAML 1.1 takes for something else is quoted", "[yaml]") {
    for (const char* text : {"no", "Yes", "ON", "n", "~", "null", "True", "", "8", "-1", ".5", "1e3", "a:b", "x#", " a", "a ", "é"})
        CHECK_FALSE(plain_text_is_safe(text));
    for (const char* text : {"delta", "gated_delta", "north", "configs/mqar.yaml", "a b", "x=y", "e5"})
        CHECK(plain_text_is_safe(text));
}

TEST_CASE("the report is sorted, each error once, with line and caret", "[diagnostics]") {
    const auto b = std::make_shared<const SourceText>(SourceText{"b.yaml", "first: 1\n\tétage: 'a b'  # c\nlast: 3"});
    const auto a = std::make_shared<const SourceText>(SourceText{"a.yaml", "x: 1\n"});
    const auto line = std::make_shared<const SourceText>(SourceText{"<command line>", "run=1\ntrain.lr=abc\n"});
    Diagnostics errors;
    errors.error({b, 3, 7}, "last line");
    errors.error({b, 2, 2}, "tab before");
    errors.error({b, 2, 9}, "quoted");
    errors.error({a, 1, 1}, "other file");
    errors.error({b, 2, 9}, "quoted");
    errors.error({line, 2, 10}, "argument");
    errors.error({}, "no place");
    CHECK(errors.report() ==
          "error: no place\n"
          "<command line>:argument 2: error: argument\n"
          "  2 | train.lr=abc\n"
          "    |          ^~~\n"
          "a.yaml:1:1: error: other file\n"
          "  1 | x: 1\n"
          "    | ^\n"
          "b.yaml:2:2: error: tab before\n"
          "  2 | \tétage: 'a b'  # c\n"
          "    | \t^~~~~\n"
          "b.yaml:2:9: error: quoted\n"
          "  2 | \tétage: 'a b'  # c\n"
          "    | \t       ^~~~~\n"
          "b.yaml:3:7: error: last line\n"
          "  3 | last: 3\n"
          "    |       ^\n"
          "6 errors");
}

TEST_CASE("a report is for a person, whatever stands in the file", "[diagnostics]") {
    const std::string word(1'000, 'x');
    const std::string report = yaml_error("a: 1\n" + word + ": 1\n" + word + ": 2\n");
    CHECK(report.size() < 1'500);
    CHECK_THAT(report, ContainsSubstring("f.yaml:3:1: error: duplicate key 'xxx"));
    CHECK_THAT(report, ContainsSubstring("x' in line 3; it already stands in line 2\n  3 | xxx"));
    // The place is in the middle of what is shown.
    const std::string far = yaml_error("a: [" + repeat("é, ", 1'000) + "*b, " + repeat("é, ", 1'000) + "]\n");
    CHECK_THAT(far, ContainsSubstring("f.yaml:1:3005: error: an alias without its anchor\n"));
    CHECK_THAT(far, ContainsSubstring("é, *b, é"));
    CHECK(far.size() < 1'000);
    CHECK_THAT(error_of([] {
                   Diagnostics errors;
                   errors.error({}, "unknown key '\x1b[31m\n\xff'");
                   errors.throw_if_any();
               }),
               ContainsSubstring("error: unknown key '\\x1b[31m\\n\\xff'\n"));
    std::string many;
    for (int i = 0; i < 3'000; ++i) many += fmt::format("? [a]\n: {}\n", i);
    std::string told;
    told = yaml_error(many);
    CHECK_THAT(told, ContainsSubstring("\n3000 errors; these are the first 100"));
    CHECK_THAT(told, ContainsSubstring("f.yaml:199:3: error"));
    CHECK_THAT(told, !ContainsSubstring("f.yaml:201:3: error"));
}

TEST_CASE("did you mean names every word that is equally near", "[diagnostics]") {
    CHECK(did_you_mean("n_headz", {"n_heads", "width"}) == "; did you mean 'n_heads'?");
    CHECK(did_you_mean("beta", {"beta1", "beta2", "eps"}) == "; did you mean 'beta1' or 'beta2'?");
    CHECK(did_you_mean("zzz", {"width"}).empty());
}
