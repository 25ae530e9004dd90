// What is asked of many runs: which of them, grouped by what, the best of which, and how they answered along a coordinate of the
// questions.
#pragma once

#include "store/runs.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace palimpsest {

// Rows grouped by the values of `by`; mean, deviation and count over the rest (seeds).
struct CompareRow {
    std::vector<std::string> group;                // values of `by`, in words
    std::vector<std::optional<Attribute>> values;  // the same as they are
    std::vector<double> mean, deviation;  // one per metric; NaN where nothing (for the deviation: only one value) was measured
    std::vector<std::size_t> measured;    // over how many runs
    std::size_t count = 0, failed = 0;    // runs with a result, and without
};
struct CompareTable {
    std::vector<std::string> by, metrics;
    std::vector<CompareRow> rows;
};
// by: config keys ("model.mixer") or summary names ("state_bytes"); metrics: summary names ("test_accuracy"). Rows in order of
// first appearance. Error(usage) lists what there is where a name is unknown.
CompareTable compare(const std::vector<CollectedRun>& runs, const std::vector<std::string>& by,
                     const std::vector<std::string>& metrics);

// By one of the table's columns, "-name" from high to low. Numbers are compared as numbers; what was not measured comes last.
void sort_rows(CompareTable& table, const std::string& column);

// Of each group the runs whose value of the `over` keys has the best mean of `selection_metric`, over the other keys (seeds).
// Error(usage) where the choice would be luck (seeds, what makes no other run) or between answers to different questions.
constexpr const char* selection_metric = "valid_accuracy";  // never of the test questions
struct Best {
    std::vector<CollectedRun> runs;
    std::vector<std::size_t> candidates;  // how many values were tried, by group
    std::vector<std::string>
        notes;  // ties, winners at an end of their range, with runs missing, or that differ in more than `over`
};
Best best_over(const std::vector<CollectedRun>& runs, const std::vector<std::string>& by, const std::vector<std::string>& over);

// Coordinates of the questions, and what share of the answers was right (or stale, …) at each.
enum class Along { segments, overwrites, distance };
std::string segment_label(const Slice& slice);  // of the segment that it belongs to
struct Profile {
    std::vector<std::string> columns;  // "length=64", "overwrites=2", "distance=5..8"
    std::vector<std::map<std::string, double>>
        values;                       // by run and column: of the last evaluation, for runs that came to their end
    std::vector<std::string> pooled;  // the segments that some column averages over; empty where each has its own
};
// metric: test_accuracy, test_stale_rate (any answer class), the same of valid, or best_policy_accuracy. Error(usage) for another.
Profile profile(const std::vector<CollectedRun>& runs, Along along, const std::string& metric);
// The table with the profile's columns as metrics; `profile` is of these runs.
CompareTable compare(const std::vector<CollectedRun>& runs, const std::vector<std::string>& by, const Profile& profile);

// Whether some test question is about a key that was overwritten before: else no answer can be stale.
bool may_be_stale(const RunRecord& record);

}  // namespace palimpsest
