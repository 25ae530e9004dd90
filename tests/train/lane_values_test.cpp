// The table of lane values: what the config says reaches the lane, its checkpoint and the shape of its pack by one row.
#include "train/lane_values.h"

#include "config/schema_fields.h"

#include <set>

#include "catch.h"

using namespace palimpsest;

namespace {

// A run whose `key` is `text` and whose other keys are at their defaults.
RunSpec run_with(std::string_view key, const std::string& text) {
    RunSpec spec;
    const auto dot = key.find('.');
    const std::string config = dot == std::string_view::npos
                                   ? fmt::format("{}: {}", key, text)
                                   : fmt::format("{}: {{{}: {}}}", key.substr(0, dot), key.substr(dot + 1), text);
    Diagnostics errors;
    run_schema().read(&spec, parse_yaml("lane", config), "", errors);
    CHECK(errors.empty());
    return spec;
}

}  // namespace

TEST_CASE("each lane value is one row of the table", "[train][lanes]") {
    // A member without a row would stay at its default without a word.
    STATIC_REQUIRE(sizeof(LaneValues) == std::size(lane_fields) * sizeof(double));
    std::set<std::string_view> names;
    for (const LaneField& field : lane_fields) names.insert(field.name());
    // Checkpoints that were written before hold these names.
    for (const char* name : {"seed", "lr", "weight_decay", "beta1", "beta2", "init_scale"}) CHECK(names.count(name) == 1);
    CHECK(names.size() == std::size(lane_fields));
}

TEST_CASE("a lane value comes from its key of the config and from no other", "[train][lanes]") {
    const LaneValues defaults = lane_values(RunSpec{});
    for (const LaneField& changed : lane_fields) {
        const std::string text = changed.key == "seed" ? "7" : "0.625";
        const LaneValues values = lane_values(run_with(changed.key, text));
        for (const LaneField& field : lane_fields) {
            INFO(changed.key << " changes " << field.key);
            CHECK(field.text(values) == (&field == &changed ? text : field.text(defaults)));
        }
    }
}

TEST_CASE("a checkpoint names a lane value exactly", "[train][lanes]") {
    LaneValues values;
    values.lr = 0.1 + 0.2;
    for (const LaneField& field : lane_fields)
        if (field.name() == "lr") CHECK(std::stod(field.text(values)) == values.lr);
}
