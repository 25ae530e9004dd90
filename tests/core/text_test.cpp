#include "core/text.h"

#include "core/error.h"

#include <algorithm>
#include <limits>

#include "catch.h"

using namespace palimpsest;

TEST_CASE("edit distance counts insertions, deletions, replacements and swaps") {
    CHECK(edit_distance("", "") == 0);
    CHECK(edit_distance("", "abc") == 3);
    CHECK(edit_distance("heads", "heads") == 0);
    CHECK(edit_distance("n_headz", "n_heads") == 1);
    CHECK(edit_distance("ehads", "heads") == 1);
    CHECK(edit_distance("kitten", "sitting") == 3);
    CHECK(edit_distance("ca", "abc") == 3);  // no edits inside a swapped pair: optimal string alignment
    CHECK(edit_distance("delta", "gated_delta") == 6);
}

TEST_CASE("closest finds what was meant, or nothing") {
    const std::vector<std::string> mixers = {"base_conv", "delta", "gated_delta", "linear", "softmax"};
    CHECK(closest("sofmax", mixers) == "softmax");
    CHECK(closest("Softmax", mixers) == "softmax");
    CHECK(closest("gate_delta", mixers) == "gated_delta");
    CHECK(closest("gated", mixers) == "gated_delta");
    CHECK(closest("softmax_attention", mixers) == "softmax");
    CHECK_FALSE(closest("mamba", mixers));
    CHECK_FALSE(closest("x", {"y"}));
    CHECK_FALSE(closest("", mixers));
    CHECK_FALSE(closest("steps", {}));
    CHECK(closest("lr1", {"lr2", "lr3"}) == "lr2");
}

TEST_CASE("words are joined and counted") {
    CHECK(join({}, ", ").empty());
    CHECK(join({"a", "b", "c"}, ", ") == "a, b, c");
    CHECK(plural(0, "run") == "0 runs");
    CHECK(plural(1, "run") == "1 run");
    CHECK(plural(12, "error") == "12 errors");
}

TEST_CASE("a table aligns words to the left and numbers to the right") {
    Table table({"mixer", "accuracy", "state", "time"});
    table.add({"softmax", "0.99 ± 0.01", "-", "1:02:03"});
    table.add({"gated_delta", "0.5", "4.0 KiB", "0:36"});
    CHECK(table.str() ==
          "mixer           accuracy    state     time\n"
          "softmax      0.99 ± 0.01        -  1:02:03\n"
          "gated_delta          0.5  4.0 KiB     0:36\n");
}

TEST_CASE("run ids and paths are words even where they begin with a digit") {
    Table table({"id", "n"});
    table.add({"3f2a", "10"});
    table.add({"12", "9"});
    table.add({"0041/1a", "8"});
    CHECK(table.str() ==
          "id        n\n"
          "3f2a     10\n"
          "12        9\n"
          "0041/1a   8\n");
}

TEST_CASE("a table without rows is its header, and a row must fit") {
    Table table({"a", "b"});
    CHECK(table.empty());
    CHECK(table.str() == "a  b\n");
    CHECK_THROWS_AS(table.add({"1"}), InternalError);
}

TEST_CASE("a table that is too wide breaks its headers, not its cells") {
    Table table({"model.mixer", "test_stale_rate", "best policy", "n"});
    table.add({"delta", "0.125", "0.5", "3"});
    const std::string wide = "model.mixer  test_stale_rate  best policy  n\ndelta                  0.125          0.5  3\n";
    CHECK(table.str() == wide);
    CHECK(table.str(44) == wide);
    CHECK(table.str(43) ==
          "         test_\n"
          "model.  stale_    best\n"
          "mixer     rate  policy  n\n"
          "delta    0.125     0.5  3\n");
}

TEST_CASE("names are sorted as a person does, numbers by their size") {
    std::vector<std::string> names = {"delta-seed=10", "delta-seed=2", "lr=0.001",        "lr=1e-05",   "lr=0.01",
                                      "lr=3",          "delta",        "lr=0.001-seed=2", "lr=0.0010-a"};
    std::sort(names.begin(), names.end(), natural_less);
    CHECK(names == std::vector<std::string>{"delta", "delta-seed=2", "delta-seed=10", "lr=1e-05", "lr=0.001", "lr=0.0010-a",
                                            "lr=0.001-seed=2", "lr=0.01", "lr=3"});
    CHECK_FALSE(natural_less("a1", "a01"));
    CHECK_FALSE(natural_less("a01", "a1"));
}

TEST_CASE("durations, rates and bytes as a person reads them") {
    CHECK(format_duration(0) == "0:00");
    CHECK(format_duration(36.4) == "0:36");
    CHECK(format_duration(59.6) == "1:00");
    CHECK(format_duration(3723) == "1:02:03");
    CHECK(format_duration(100 * 3600.0) == "100:00:00");
    CHECK(format_duration(-1) == "?");
    CHECK(format_duration(std::numeric_limits<double>::quiet_NaN()) == "?");
    CHECK(format_duration(std::numeric_limits<double>::infinity()) == "?");

    CHECK(format_rate(0) == "0");
    CHECK(format_rate(512) == "512");
    CHECK(format_rate(1.5) == "1.50");
    CHECK(format_rate(34512) == "34.5k");
    CHECK(format_rate(999.4) == "999");
    CHECK(format_rate(999.6) == "1.00k");
    CHECK(format_rate(1.2e6) == "1.20M");
    CHECK(format_rate(99.96e3) == "100k");
    CHECK(format_rate(2.5e15) == "2500T");

    CHECK(format_bytes(0) == "0 B");
    CHECK(format_bytes(1023) == "1023 B");
    CHECK(format_bytes(1536) == "1.5 KiB");
    CHECK(format_bytes(1024 * 1024 - 1) == "1.0 MiB");
    CHECK(format_bytes(std::int64_t{5} << 30) == "5.0 GiB");
}

TEST_CASE("a command can be pasted into a shell") {
    CHECK(shell_line({"palimpsest", "run", "a.yaml", "train.lr=1e-3"}) == "palimpsest run a.yaml train.lr=1e-3");
    CHECK(shell_line({"x", "", "a b", "m=[1, \"s\"]", "it's"}) == "x '' 'a b' 'm=[1, \"s\"]' 'it'\\''s'");
    // Whatever the bytes, a line that can be printed, recorded and pasted.
    CHECK(shell_line({"résumé", "caf\xe9", "a\n'b\\", "\x1b[2J"}) == "'résumé' $'caf\\xe9' $'a\\x0a\\'b\\\\' $'\\x1b[2J'");
}

TEST_CASE("what UTF-8 is") {
    for (const char* good : {"", "a", "é", "…", "\xed\x9f\xbf", "\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"})
        CHECK(is_utf8(good));
    for (const char* bad : {"caf\xe9", "\x80", "\xc0\xaf", "\xe2\x82", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
                            "\xf4\x90\x80\x80", "\xff"})
        CHECK_FALSE(is_utf8(bad));
    CHECK(has_control_characters("a\nb"));
    CHECK(has_control_characters("\x7f"));
    CHECK_FALSE(has_control_characters("a é"));
}
