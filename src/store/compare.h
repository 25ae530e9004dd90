// What is asked of many runs: which of them, grouped by what, the best of which, and how they answered along a coordinate of the questions.
#pragma once

#include "store/sweep_file.h"

#include <optional>
#include <string>
#include <vector>

namespace palimpsest {

// What a run has under a config key: typed where its record was read, else by the plan's text. A section with a name goes by it.
std::optional<Attribute> config_value(const CollectedRun& run, const std::string& key);
std::string in_words(const Attribute& value);
std::string value_of(const CollectedRun& run, const std::string& key);  // in words; "" where it has none

// Every key that some run has, sorted.
std::vector<std::string> config_keys(const std::vector<CollectedRun>& runs);

// Whether the values of `from` determine that of `key`.
bool follows(const std::vector<CollectedRun>& runs, const std::string& key, const std::vector<std::string>& from);

// The keys in which runs differ: of `swept` those with several values, then any others with several values that do not follow from the
// swept ones, then those that some runs lack, unless they follow too (as the options of a mixer follow from the mixer). Without the seed
// and without what makes no other run.
std::vector<std::string> differing_keys(const std::vector<CollectedRun>& runs, const std::vector<std::string>& swept);

// Keeps the runs of "key=value" or "key=value,value". Numbers are compared as numbers. Error(usage) for a key that no run has, or
// values that leave none.
std::vector<CollectedRun> filter(const std::vector<CollectedRun>& runs, const std::string& where);

// Rows grouped by the values of `by`; mean, deviation and count over the rest (seeds).
struct CompareRow {
    std::vector<std::string> group;          // values of `by`
    std::vector<double> mean, deviation;     // one per metric; NaN where nothing (for the deviation: only one value) was measured
    std::size_t count = 0, failed = 0;       // runs with a summary, and without
};
struct CompareTable {
    std::vector<std::string> by, metrics;
    std::vector<CompareRow> rows;
};
// by: config keys ("model.mixer"); metrics: summary names ("test_accuracy"). Rows in order of first appearance. Error(usage) lists what
// there is where a name is unknown.
CompareTable compare(const std::vector<CollectedRun>& runs, const std::vector<std::string>& by, const std::vector<std::string>& metrics);

// By one of the table's columns, "-name" from high to low. Numbers are compared as numbers; what was not measured comes last.
void sort_rows(CompareTable& table, const std::string& column);

// Of each group the runs whose value of the `over` keys has the best mean of `selection_metric`, over the other keys (seeds).
constexpr const char* selection_metric = "valid_accuracy";  // never of the test questions
struct Best {
    std::vector<CollectedRun> runs;
    std::vector<std::size_t> candidates;     // how many values were tried, by group
    std::vector<std::string> notes;          // ties, winners at an end of their range, winners with runs missing
};
Best best_over(const std::vector<CollectedRun>& runs, const std::vector<std::string>& by, const std::vector<std::string>& over);

// Coordinates of the questions, and what share of the answers was right (or stale, …) at each.
enum class Along { segments, overwrites, distance };
std::string segment_label(const Slice& slice);  // of the segment that it belongs to
struct Profile {
    std::vector<std::string> columns;        // "length=64", "overwrites=2", "distance=5..8"
    std::vector<CollectedRun> runs;          // with summaries by column: of the last evaluation, for runs that came to their end
};
// metric: test_accuracy, test_stale_rate (any answer class), the same of valid, or best_policy_accuracy. Error(usage) for another.
Profile profile(const std::vector<CollectedRun>& runs, Along along, const std::string& metric);

}  // namespace palimpsest
