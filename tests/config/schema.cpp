#include "config/schema.h"

#include "errors.h"

#include "catch.h"

using namespace palimpsest;

namespace {

enum class Map { elu, relu };

struct Inner {
    std::int64_t taps = 4;
    double rate = 0.5;
};

struct Options {
    std::int64_t heads = 2;
    bool normalise = true;
    Map map = Map::elu;
    Range overwrites{0, 3};
    double dropout = 0, scale = 1;
    std::vector<std::string> layers = {"a", "b"};
    std::int64_t threads = 0;
    double slope = 0.1;
    Inner conv;
};

const Schema<Inner>& inner_schema() {
    static const Schema<Inner> schema = Schema<Inner>()
                                            .field("taps", &Inner::taps, between(1, 8), "width of the filter")
                                            .field("rate", &Inner::rate, "a rate")
                                            .not_identity();
    return schema;
}

const Schema<Options>& schema() {
    static const Schema<Options> schema = Schema<Options>()
                                              .field("heads", &Options::heads, at_least(1), "number of heads")
                                              .field("normalise", &Options::normalise, "divide by the sum")
                                              .choice("feature_map", &Options::map, {{"elu", Map::elu}, {"relu", Map::relu}}, "phi")
                                              .field("overwrites", &Options::overwrites, between(0, 100), "changes per key")
                                              .field("dropout", &Options::dropout, {0, 1, false, true}, "share that is dropped")
                                              .field("scale", &Options::scale, above(0), "a factor")
                                              .field("layers", &Options::layers, "names")
                                              .field("threads", &Options::threads, at_least(0), "how many")
                                              .not_identity()
                                              .field("slope", &Options::slope, "of relu")
                                              .used_when("feature_map", {"relu"})
                                              .used_unless("overwrites", {"0", "1"})
                                              .group("conv", &Options::conv, inner_schema(), "short convolution");
    return schema;
}

std::string report(const std::string& yaml, const std::string& section = "mixers.delta") {
    Options options;
    Diagnostics errors;
    schema().read(&options, parse_yaml("f.yaml", yaml), section, errors);
    return errors.empty() ? "" : errors.report();
}

std::string identity(const std::string& yaml) {
    Options options;
    Diagnostics errors;
    schema().read(&options, parse_yaml("f.yaml", yaml), "", errors);
    errors.throw_if_any();
    return emit_flow(schema().write_identity(&options));
}

}  // namespace

TEST_CASE("a schema describes its options", "[schema]") {
    const Option& heads = *schema().find("heads");
    CHECK(heads.type == "integer");
    CHECK(heads.default_text == "2");
    CHECK(heads.allowed == "at least 1");
    CHECK(heads.meaning == "number of heads");
    CHECK(heads.identity);
    CHECK(schema().find("feature_map")->allowed == "elu | relu");
    CHECK(schema().find("feature_map")->default_text == "elu");
    CHECK(schema().find("overwrites")->type == "range");
    CHECK(schema().find("overwrites")->default_text == "0..3");
    CHECK(schema().find("overwrites")->allowed == "0 to 100");
    CHECK(schema().find("dropout")->allowed == "at least 0 and below 1");
    CHECK(schema().find("scale")->allowed == "above 0");
    CHECK(schema().find("layers")->default_text == "[a, b]");
    CHECK_FALSE(schema().find("threads")->identity);
    CHECK(schema().find("conv")->default_text == "{taps: 4, rate: 0.5}");
    CHECK(schema().find("conv")->nested == &inner_schema());
    CHECK(schema().find("nothing") == nullptr);
}

TEST_CASE("keys that are not given keep what the object has", "[schema]") {
    Options options;
    options.heads = 8;
    options.conv.taps = 7;
    Diagnostics errors;
    schema().read(&options, parse_yaml("f", "normalise: false\nfeature_map: relu\nconv: {rate: 2}\n"), "", errors);
    CHECK(errors.empty());
    CHECK(options.heads == 8);
    CHECK_FALSE(options.normalise);
    CHECK(options.map == Map::relu);
    CHECK(options.conv.taps == 7);
    CHECK(options.conv.rate == 2);
}

TEST_CASE("unknown keys are errors with a suggestion or the known keys", "[schema]") {
    CHECK(report("headz: 4\n") ==
          "f.yaml:1:1: error: unknown key 'headz' in 'mixers.delta'; did you mean 'heads'?\n  1 | headz: 4\n    | ^~~~~\n1 error");
    CHECK(first_line(report("zzz: 4\n")) ==
          "f.yaml:1:1: unknown key 'zzz' in 'mixers.delta'; known keys: conv, dropout, feature_map, heads, layers, normalise, "
          "overwrites, "
          "scale, slope, threads");
    CHECK(first_line(report("conv: {tap: 4}\n")) == "f.yaml:1:8: unknown key 'tap' in 'mixers.delta.conv'; did you mean 'taps'?");
    CHECK(first_line(report("head: 4\n", "")) == "f.yaml:1:1: unknown key 'head'; did you mean 'heads'?");
    Options options;
    Diagnostics errors;
    schema().read(&options, parse_yaml("f.yaml", "train: 1\ntrainn: 2\n"), "task", errors, {"train"});
    CHECK(first_line(errors.report()) == "f.yaml:2:1: unknown key 'trainn' in 'task'; did you mean 'train'?");
    CHECK(errors.size() == 1);
}

TEST_CASE("limits are told with the value", "[schema]") {
    CHECK(first_line(report("heads: 0\n")) == "f.yaml:1:8: 'mixers.delta.heads' must be at least 1, got 0");
    CHECK(first_line(report("dropout: 1\n")) == "f.yaml:1:10: 'mixers.delta.dropout' must be at least 0 and below 1, got 1");
    CHECK(first_line(report("scale: 0.0\n")) == "f.yaml:1:8: 'mixers.delta.scale' must be above 0, got 0.0");
    CHECK(first_line(report("overwrites: 0..101\n")) == "f.yaml:1:13: 'mixers.delta.overwrites' must be 0 to 100, got 0..101");
    CHECK(first_line(report("conv: {taps: 9}\n")) == "f.yaml:1:14: 'mixers.delta.conv.taps' must be 1 to 8, got 9");
    CHECK(report("heads: 1\ndropout: 0\nscale: 2e-38\noverwrites: 100\n").empty());
}

TEST_CASE("a number must keep its limits in single precision", "[schema]") {
    CHECK(first_line(report("scale: 1e-60\n")) ==
          "f.yaml:1:8: 'mixers.delta.scale' is 1e-60, but single precision holds 1.2e-38 to 3.4e+38 only");
    CHECK(first_line(report("scale: 1e39\n")) ==
          "f.yaml:1:8: 'mixers.delta.scale' is 1e39, but single precision holds 1.2e-38 to 3.4e+38 only");
    CHECK(first_line(report("dropout: 1e-40\n")) ==
          "f.yaml:1:10: 'mixers.delta.dropout' is 1e-40, but single precision holds 1.2e-38 to 3.4e+38 only; write 0 if nothing is "
          "meant");
    CHECK(first_line(report("dropout: 0.999999999\n")) ==
          "f.yaml:1:10: 'mixers.delta.dropout' must be at least 0 and below 1, got 0.999999999, which is 1.0 in single precision");
    CHECK(report("dropout: 0.9999999\nscale: 3e38\n").empty());
}

TEST_CASE("a section must be a map", "[schema]") {
    CHECK(first_line(report("[a]\n")) == "f.yaml:1:1: 'mixers.delta' expects a map of options, got a list");
    CHECK(first_line(report("conv: 3\n")) == "f.yaml:1:7: 'mixers.delta.conv' expects a map of options, got '3'");
    CHECK(report("conv:\n").empty());
}

TEST_CASE("every key is written, and only what is not at its default counts for identity", "[schema]") {
    const Options options;
    CHECK(emit_flow(schema().write(&options)) ==
          "{heads: 2, normalise: true, feature_map: elu, overwrites: 0..3, dropout: 0.0, scale: 1.0, layers: [a, b], threads: 0, "
          "conv: {taps: 4, rate: 0.5}}");
    CHECK(identity("") == "{}");
    CHECK(identity("heads: 2\nscale: 1\nconv: {taps: 4}\n") == "{}");
    CHECK(identity("threads: 8\nconv: {rate: 3}\n") == "{}");
    CHECK(identity("layers: [a]\nheads: 4\nconv: {taps: 3, rate: 3}\n") == "{heads: 4, layers: [a], conv: {taps: 3}}");
}

TEST_CASE("an option that does not count is neither written nor part of the identity", "[schema]") {
    const Option& slope = *schema().find("slope");
    CHECK(schema().where_used(slope, "mixers.a") == "mixers.a.feature_map is relu and mixers.a.overwrites is not 0 or 1");
    CHECK(schema().decided_by(slope) == std::vector<std::string>{"feature_map", "overwrites"});
    CHECK(schema().where_used(*schema().find("heads")).empty());
    CHECK(identity("slope: 0.7\n") == "{}");
    CHECK(identity("feature_map: relu\nslope: 0.7\noverwrites: 1\n") == "{feature_map: relu, overwrites: 1}");
    CHECK(identity("feature_map: relu\nslope: 0.7\noverwrites: 2\n") == "{feature_map: relu, overwrites: 2, slope: 0.7}");
    Options options;
    options.slope = 0.7;
    CHECK_FALSE(schema().write(&options).find("slope"));
    CHECK(schema().write_all(&options).find("slope")->text == "0.7");
    schema().settle(&options);
    CHECK(options.slope == 0.1);
    options.map = Map::relu;
    options.slope = 0.7;
    schema().settle(&options);
    CHECK(options.slope == 0.7);
}

TEST_CASE("an option declared twice is our mistake", "[schema]") {
    CHECK_THROWS_AS(Schema<Options>().field("heads", &Options::heads, "").field("heads", &Options::heads, ""), InternalError);
}
