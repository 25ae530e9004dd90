#include "core/error.h"
#include "core/text.h"
#include "store/answers.h"
#include "store/compare.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace palimpsest {
namespace {

// What is counted: an answer class of one split, by the model or by the best shallow policies.
struct Measure {
    std::int64_t split = 1;
    std::string answer = "correct";
    bool policies = false;
};

Measure parse_measure(const std::string& metric, const std::vector<CollectedRun>& runs) {
    std::vector<std::pair<std::string, Measure>> known = {
        {"test_accuracy", {}}, {"valid_accuracy", {.split = 0}}, {"best_policy_accuracy", {.policies = true}}};
    std::vector<std::string> classes, names;
    for (const CollectedRun& run : runs)
        if (!run.record.answer_classes.empty()) classes = run.record.answer_classes;
    for (const std::int64_t split : {1, 0})
        for (const std::string& answer : classes)
            known.push_back({fmt::format("{}_{}_rate", split == 1 ? "test" : "valid", answer), {split, answer}});
    for (const auto& [name, measure] : known) {
        if (name == metric) return measure;
        names.push_back(name);
    }
    const std::optional<std::string> near = closest(metric, names);
    fail(ExitCode::usage, "'{}' is not counted by question{} There are: {}", metric,
         near ? fmt::format("; did you mean '{}'?", *near) : ".", join(names, ", "));
}

// What to sort a column by, and its name.
using Column = std::pair<std::int64_t, std::string>;

Column column_of(const Slice& slice, Along along) {
    switch (along) {
        case Along::segments: return {slice.segment, segment_label(slice)};
        case Along::overwrites: return {slice.overwrites, fmt::format("overwrites={}", slice.overwrites)};
        case Along::distance:
            return {slice.distance_to, slice.distance_from == slice.distance_to
                                           ? fmt::format("distance={}", slice.distance_to)
                                           : fmt::format("distance={}..{}", slice.distance_from, slice.distance_to)};
    }
    return {};
}

std::map<Column, double> rates(const RunRecord& record, const Measure& measure, Along along) {
    const auto column = [&](const Slice& slice) {
        return slice.split == measure.split ? std::optional(column_of(slice, along)) : std::nullopt;
    };
    std::map<Column, double> out;
    if (measure.policies) {
        std::set<Column> columns;
        for (const Slice& slice : record.slices)
            if (const auto here = column(slice)) columns.insert(*here);
        for (const Column& here : columns) {
            const PolicyShare best = sum(best_policies(record.slices, record.answer_classes.size(), record.policy_answers,
                                                       [&](const Slice& slice) { return column(slice) == here; }));
            if (best.all > 0) out.emplace(here, best.share());
        }
        return out;
    }
    const auto answer = std::find(record.answer_classes.begin(), record.answer_classes.end(), measure.answer);
    if (record.eval_step.empty() || answer == record.answer_classes.end()) return out;
    for (const auto& [here, found] : tally(record.slices, answers_at(record, record.eval_step.size() - 1), column))
        if (found.all() > 0) out.emplace(here, found.share(static_cast<std::size_t>(answer - record.answer_classes.begin())));
    return out;
}

}  // namespace

// "test length=64 pairs=4 overwrites=2 distance=5..8" -> "length=64 pairs=4"
std::string segment_label(const Slice& slice) {
    const std::size_t begin = slice.label.find(' ') + 1, end = slice.label.rfind(" overwrites=");
    return end == std::string::npos || end < begin ? slice.label : slice.label.substr(begin, end - begin);
}

Profile profile(const std::vector<CollectedRun>& runs, Along along, const std::string& metric) {
    const Measure measure = parse_measure(metric, runs);
    Profile out;
    std::vector<Column> columns;
    std::set<std::string> known;
    std::set<std::string> pooled;
    for (const CollectedRun& run : runs) {
        std::map<std::string, double>& values = out.values.emplace_back();
        if (run.record.summary.empty()) continue;
        for (const auto& [column, rate] : rates(run.record, measure, along)) {
            values[column.second] = rate;
            if (known.insert(column.second).second) columns.push_back(column);
        }
        std::map<Column, std::set<std::string>> segments;
        for (const Slice& slice : run.record.slices)
            if (slice.split == measure.split) segments[column_of(slice, along)].insert(segment_label(slice));
        for (const auto& [column, labels] : segments)
            if (labels.size() > 1) pooled.insert(labels.begin(), labels.end());
    }
    std::stable_sort(columns.begin(), columns.end(), [](const Column& a, const Column& b) { return a.first < b.first; });
    for (const Column& column : columns) out.columns.push_back(column.second);
    out.pooled = {pooled.begin(), pooled.end()};
    return out;
}

bool may_be_stale(const RunRecord& record) {
    return std::any_of(record.slices.begin(), record.slices.end(),
                       [](const Slice& slice) { return slice.split == 1 && slice.overwrites > 0; });
}

}  // namespace palimpsest
