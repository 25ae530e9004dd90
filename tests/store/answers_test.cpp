// Answers counted over groups of slices, and the best shallow policies.
#include "store/answers.h"

#include <cmath>
#include <optional>

#include "catch.h"

using namespace palimpsest;

namespace {

// Two segments of the test and one of the valid split; classes: right, wrong.
const std::vector<Slice> slices = {
    {0, 0, 0, 1, 8, "valid"}, {1, 0, 0, 1, 8, "near"}, {1, 0, 0, 9, 16, "far"}, {1, 1, 0, 1, 8, "other"}};

std::optional<std::int64_t> by_segment(const Slice& slice) {
    return slice.split == 1 ? std::optional(slice.segment) : std::nullopt;
}

bool of_test(const Slice& slice) { return slice.split == 1; }

}  // namespace

TEST_CASE("answers are counted by what a slice is asked for") {
    const std::vector<std::int64_t> answers = {9, 9, 1, 3, 2, 4, 5, 0};
    const auto segments = tally(slices, answers, by_segment);
    REQUIRE(segments.size() == 2);
    CHECK(segments.at(0).by_class == std::vector<std::int64_t>{3, 7});
    CHECK(segments.at(0).slices == std::vector<std::size_t>{1, 2});
    CHECK(segments.at(0).all() == 10);
    CHECK(segments.at(0).share(0) == 0.3);
    CHECK(segments.at(1).share(1) == 0);
    CHECK_THROWS_AS(segments.at(0).share(2), std::out_of_range);
    CHECK(tally(slices, std::vector<std::int64_t>{}, by_segment).empty());
    CHECK(tally(std::vector<Slice>{}, std::vector<std::int64_t>{}, by_segment).empty());
    CHECK(std::isnan(Tally{{0, 0}, {0}}.share(0)));
}

TEST_CASE("slices that were not scored are no answers") {
    const std::vector<std::int64_t> answers = {-1, -1, -1, -1, 2, 4, -1, -1};
    const auto segments = tally(slices, answers, by_segment);
    REQUIRE(segments.size() == 1);
    CHECK(segments.at(0).by_class == std::vector<std::int64_t>{2, 4});
}

TEST_CASE("in each segment the best of its policies counts, of equal ones the first") {
    const std::vector<std::int64_t> answers = {0, 9, 1, 3, 2, 4, -1, -1,   // 3 of 10, and not scored
                                               9, 0, 2, 2, 1, 5, -1, -1,   // 3 of 10 too
                                               9, 0, 0, 4, 0, 6, -1, -1};  // 0 of 10
    const auto best = best_policies(slices, 2, answers, of_test);
    REQUIRE(best.size() == 1);  // in the second segment none was scored
    CHECK(best.at(0).right == 3);
    CHECK(best.at(0).all == 10);
    CHECK(best.at(0).policies == std::set<std::size_t>{0});
    CHECK(best_policies(slices, 2, {}, of_test).empty());
    const PolicyShare total = sum({{0, {3, 10, {0}}}, {1, {4, 5, {2}}}});
    CHECK(total.share() == 7.0 / 15);
    CHECK(total.policies == std::set<std::size_t>{0, 2});
}
