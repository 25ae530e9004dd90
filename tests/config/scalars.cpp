#include "config/schema.h"
#include "errors.h"

#include <cmath>
#include <cstring>
#include <regex>

#include "catch.h"

using namespace palimpsest;

namespace {

enum class Word { none, elu, relu };

struct Options {
    std::int64_t integer = -7;
    double number = -7;
    bool flag = false;
    std::string text = "-7";
    Range range{-7, -7};
    Word word = Word::none;
    std::vector<std::int64_t> integers;
    std::vector<double> numbers;
    std::vector<bool> flags;
    std::vector<std::string> texts;
};

const Schema<Options>& schema() {
    static const Schema<Options> schema =
        Schema<Options>()
            .field("integer", &Options::integer, "")
            .field("number", &Options::number, "")
            .field("flag", &Options::flag, "")
            .field("text", &Options::text, "")
            .field("range", &Options::range, "")
            .choice("word", &Options::word, {{"none", Word::none}, {"elu", Word::elu}, {"relu", Word::relu}}, "")
            .field("integers", &Options::integers, "")
            .field("numbers", &Options::numbers, "")
            .field("flags", &Options::flags, "")
            .field("texts", &Options::texts, "");
    return schema;
}

// What `key: literal` reads as, written back; or the error.
std::string outcome(const std::string& key, const std::string& literal) {
    Options options;
    Diagnostics errors;
    const Value root = parse_yaml("f.yaml", key + ": " + literal + "\n");
    schema().read(&options, root, "s", errors);
    if (errors.empty()) return emit_flow(*schema().write(&options).find(key));
    const std::string line = first_line(errors.report());
    const std::string place = root.entries[0].value.source.where() + ": ";
    REQUIRE(line.rfind(place, 0) == 0);
    return "! " + line.substr(place.size());
}

struct Row {
    const char* literal;
    std::string integer, number, flag, text, range, word;  // "" : the usual message with the literal as found
};

}  // namespace

// 40 literals read as 6 types.
TEST_CASE("literals are read by one set of rules", "[scalars]") {
    const std::string to3 = "; write 3", no_unit = "";
    const Row rows[] = {
        // literal      integer             number             flag                range
        {"3", "3", "3.0", "", "\"3\"", "3", ""},
        {"+3", "3", "3.0", "", "\"+3\"", "3", ""},
        {"-3", "-3", "-3.0", "", "\"-3\"", "-3", ""},
        {"0", "0", "0.0", "! ; write false", "\"0\"", "0", ""},
        {"1", "1", "1.0", "! ; write true", "\"1\"", "1", ""},
        {"-0", "0", "0.0", "", "\"-0\"", "0", ""},
        {"1e3", "! ; write 1000", "1000.0", "", "\"1e3\"", "! ; write 1000", ""},
        {"1.0", "! ; write 1", "1.0", "", "\"1.0\"", "! ; write 1", ""},
        {"1.", "! ; write 1", "1.0", "", "\"1.\"", "! ; write 1", ""},
        {"1.5", "", "1.5", "", "\"1.5\"", "", ""},
        {".5", "", "0.5", "", "\".5\"", "", ""},
        {"1e-5", "", "1.0e-05", "", "\"1e-5\"", "", ""},
        {"1.0e-05", "", "1.0e-05", "", "\"1.0e-05\"", "", ""},
        {"2E+20", "", "2.0e+20", "", "\"2E+20\"", "", ""},
        {"1e400", "", "! , which a 64-bit number cannot hold", "", "\"1e400\"", "", ""},
        {"010", "! , which is ambiguous; write 10 or 0o10", "! , which is ambiguous; write 10 or 0o10", "", "\"010\"",
         "! , which is ambiguous; write 10 or 0o10", ""},
        {"-08", "! , which is ambiguous; write -8", "! , which is ambiguous; write -8", "", "\"-08\"",
         "! , which is ambiguous; write -8", ""},
        {"00.5", "! , which is ambiguous; write 0.5", "! , which is ambiguous; write 0.5", "", "\"00.5\"",
         "! , which is ambiguous; write 0.5", ""},
        {"0o10", "8", "", "", "\"0o10\"", "8", ""},
        {"0x10", "! , which is hexadecimal; write 16", "! , which is hexadecimal; write 16", "", "\"0x10\"",
         "! , which is hexadecimal; write 16", ""},
        {"1_000", "! ; write 1000", "! ; write 1000", "", "\"1_000\"", "! ; write 1000", ""},
        {"3000000000", "3000000000", "3000000000.0", "", "\"3000000000\"", "3000000000", ""},
        {"9223372036854775807", "9223372036854775807", "9.223372036854776e+18", "", "\"9223372036854775807\"",
         "9223372036854775807", ""},
        {"9223372036854775808", "! , which does not fit into 64 bits", "9.223372036854776e+18", "", "\"9223372036854775808\"",
         "! , which does not fit into 64 bits", ""},
        {"inf", "", "! ; a number must be finite", "", "inf", "", ""},
        {".inf", "", "! ; a number must be finite", "", "\".inf\"", "", ""},
        {".nan", "", "! ; a number must be finite", "", "\".nan\"", "", ""},
        {"true", "", "", "true", "\"true\"", "", ""},
        {"false", "", "", "false", "\"false\"", "", ""},
        {"True", "", "", "! ; write true", "\"True\"", "", ""},
        {"yes", "", "", "! ; write true", "\"yes\"", "", ""},
        {"no", "", "", "! ; write false", "\"no\"", "", ""},
        {"on", "", "", "! ; write true", "\"on\"", "", ""},
        {"Off", "", "", "! ; write false", "\"Off\"", "", ""},
        {"y", "", "", "! ; write true", "\"y\"", "", ""},
        {"0..3", "", "", "", "\"0..3\"", "0..3", ""},
        {"3..0", "", "", "", "\"3..0\"", "! ; write the lower end first: 0..3", ""},
        {"-2..-1", "", "", "", "\"-2..-1\"", "-2..-1", ""},
        {"0..", "", "", "", "\"0..\"", "", ""},
        {"1:30", "", "", "", "\"1:30\"", "", ""},
        {"elu", "", "", "", "elu", "", "elu"},
        {"rleu", "", "", "", "rleu", "", "! ; did you mean 'relu'?"},
        {"abc", "", "", "", "abc", "", ""},
        {"x y", "", "", "", "x y", "", ""},
    };
    for (const Row& row : rows) {
        INFO(row.literal);
        const std::string got = std::string("got '") + row.literal + "'";
        const auto expected = [&](const std::string& cell, const std::string& type, const std::string& before) {
            if (!cell.empty() && cell.rfind("! ", 0) != 0) return cell;
            return "! 's." + type + "' expects " + before + got + (cell.empty() ? "" : cell.substr(2));
        };
        CHECK(outcome("integer", row.literal) == expected(row.integer, "integer", "an integer, "));
        CHECK(outcome("number", row.literal) == expected(row.number, "number", "a number, "));
        CHECK(outcome("flag", row.literal) == expected(row.flag, "flag", "true or false, "));
        CHECK(outcome("text", row.literal) == expected(row.text, "text", ""));
        CHECK(outcome("range", row.literal) == expected(row.range, "range", "a range such as 0..3, "));
        CHECK(outcome("word", row.literal) == expected(row.word, "word", "one of none, elu, relu; "));
    }
}

TEST_CASE("quotes make text of everything", "[scalars]") {
    CHECK(outcome("integer", "\"8\"") == "! 's.integer' expects an integer, got the text \"8\"; write it without quotes");
    CHECK(outcome("number", "'1e-3'") == "! 's.number' expects a number, got the text \"1e-3\"; write it without quotes");
    CHECK(outcome("flag", "\"true\"") == "! 's.flag' expects true or false, got the text \"true\"; write it without quotes");
    CHECK(outcome("flag", "\"no\"") == "! 's.flag' expects true or false, got the text \"no\"");
    CHECK(outcome("range", "\"0..3\"") ==
          "! 's.range' expects a range such as 0..3, got the text \"0..3\"; write it without quotes");
    CHECK(outcome("integer", "\"\"") == "! 's.integer' expects an integer, got the text \"\"");
    CHECK(outcome("text", "\"8\"") == "\"8\"");
    CHECK(outcome("text", "''") == "\"\"");
    CHECK(outcome("word", "\"elu\"") == "elu");
}

TEST_CASE("nothing, lists and maps are not scalars", "[scalars]") {
    for (const char* nothing : {"", "~", "null"}) {
        INFO(nothing);
        Options options;
        Diagnostics errors;
        schema().read(&options, parse_yaml("f.yaml", std::string("text: ") + nothing + "\ninteger: " + nothing + "\n"), "s",
                      errors);
        CHECK_THAT(errors.report(),
                   ContainsSubstring("error: 's.text' expects text, got nothing; quote it if the word itself is meant\n"));
        CHECK_THAT(errors.report(), ContainsSubstring("error: 's.integer' expects an integer, got nothing\n"));
    }
    CHECK(outcome("integer", "[1]") == "! 's.integer' expects an integer, got a list");
    CHECK(outcome("flag", "{a: 1}") == "! 's.flag' expects true or false, got a map");
    CHECK(outcome("word", "[elu]") == "! 's.word' expects one of none, elu, relu; got a list");
}

TEST_CASE("lists read each entry by the same rules", "[scalars]") {
    CHECK(outcome("integers", "[1, -2]") == "[1, -2]");
    CHECK(outcome("numbers", "[1, 1e-5]") == "[1.0, 1.0e-05]");
    CHECK(outcome("flags", "[true, false]") == "[true, false]");
    CHECK(outcome("texts", "[a, \"b\", no]") == "[a, b, \"no\"]");
    CHECK(outcome("texts", "[]") == "[]");
    CHECK(outcome("integers", "3") == "! 's.integers' expects a list of integers, got '3'; write [3]");
    CHECK(outcome("texts", "{a: 1}") == "! 's.texts' expects a list of texts, got a map");
    Options options;
    Diagnostics errors;
    schema().read(&options, parse_yaml("f.yaml", "integers: [1, 1e3, x]\n"), "s", errors);
    CHECK(errors.report() ==
          "f.yaml:1:15: error: 's.integers.1' expects an integer, got '1e3'; write 1000\n"
          "  1 | integers: [1, 1e3, x]\n"
          "    |               ^~~\n"
          "f.yaml:1:20: error: 's.integers.2' expects an integer, got 'x'\n"
          "  1 | integers: [1, 1e3, x]\n"
          "    |                    ^\n"
          "2 errors");
}

TEST_CASE("a huge text in the wrong field is an error, not a crash", "[scalars]") {
    for (const char* key : {"integer", "number", "flag", "range"})
        CHECK_THAT(outcome(key, std::string(200'000, '1')), ContainsSubstring(std::string("'s.") + key + "' expects "));
}

TEST_CASE("what is written reads back to the same bits", "[scalars]") {
    // What PyYAML takes for a number, from its resolver (YAML 1.1).
    const std::regex pyyaml_float("[-+]?[0-9][0-9_]*\\.[0-9_]*([eE][-+][0-9]+)?");
    std::uint64_t bits = 0x9E3779B97F4A7C15ull;
    for (int i = 0; i < 20'000; ++i) {
        bits = bits * 6364136223846793005ull + 1442695040888963407ull;
        double number = 0;
        std::memcpy(&number, &bits, sizeof number);
        if (!std::isfinite(number)) continue;
        const Value written = fields::write(number);
        double back = 0;
        Diagnostics errors;
        fields::read(back, written, "n", {}, errors);
        REQUIRE(errors.empty());
        REQUIRE(std::memcmp(&back, &number, sizeof number) == 0);
        REQUIRE(std::regex_match(written.text, pyyaml_float));
    }
    CHECK(fields::write(0.1).text == "0.1");
    CHECK(fields::write(1e-5).text == "1.0e-05");
    CHECK(fields::write(3.0).text == "3.0");
    CHECK(fields::write(std::int64_t{-3}).text == "-3");
    CHECK(fields::write(Range{0, 3}).text == "0..3");
    CHECK(fields::write(Range{3, 3}).text == "3");
}
