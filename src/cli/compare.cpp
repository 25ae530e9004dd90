// palimpsest compare SWEEP…: prints mean, deviation and count over seeds.
#include "cli/app.h"
#include "cli/output.h"
#include "cli/select.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

namespace palimpsest::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Arguments {
    SelectArguments select;
    std::vector<std::string> by, metrics, over;
    std::string sort, along;
    bool segments = false, json = false, markdown = false;
};

std::string cell(double mean, double deviation, std::size_t count) {
    if (!std::isfinite(mean) || count < 2 || !std::isfinite(deviation)) return value_text(mean);
    if (deviation == 0 && mean == std::round(mean) && std::abs(mean) > 1) return value_text(mean);  // a size, not a measurement
    // Mean and deviation both get the digits of the mean.
    return std::abs(mean) < 1000 ? fmt::format("{:.3f} ± {:.3f}", mean, deviation)
                                 : fmt::format("{:.0f} ± {:.0f}", mean, deviation);
}

// Keeps the best runs of each group and tells how they were chosen. The keys chosen over become columns.
void choose(std::vector<CollectedRun>& runs, std::vector<std::string>& by, const std::vector<std::string>& over) {
    Best best = best_over(runs, by, over);
    const auto [fewest, most] = std::minmax_element(best.candidates.begin(), best.candidates.end());
    const auto count = static_cast<std::int64_t>(*most);
    log_info("{}: chosen by the mean {} (the valid split, never the test questions) of {}", join(over, ", "), selection_metric,
             *fewest == *most ? plural(count, "candidate") : fmt::format("{} to {}", *fewest, plural(count, "candidate")));
    for (const std::string& note : best.notes) log_info("note: {}", note);
    runs = std::move(best.runs);
    by.insert(by.end(), over.begin(), over.end());
}

// Tells where a number rests on the valid questions, because these are not drawn alike in every config.
void tell_valid(const std::vector<CollectedRun>& runs, const Arguments& arguments) {
    const auto of_valid = [](const std::string& metric) {
        return metric.starts_with("valid_") || metric.starts_with("best_valid") || metric.starts_with("best_test");
    };
    if (arguments.over.empty() && std::none_of(arguments.metrics.begin(), arguments.metrics.end(), of_valid)) return;
    std::set<std::string> sources;
    for (const CollectedRun& run : runs)
        if (const std::string valid = value_of(run, "task.valid"); !valid.empty()) sources.insert(valid_source(valid));
    if (!sources.empty())
        log_info("note: valid questions are drawn from {}", join({sources.begin(), sources.end()}, ", and of other runs from "));
}

// A `Part` is one table: of all summaries together, or of one metric along the kinds of question.
struct Part {
    std::string metric;  // "" for all summaries
    CompareTable table;
    std::vector<std::string> pooled;  // segments that share a column
};

std::vector<Part> compare_parts(const std::vector<CollectedRun>& runs, const Arguments& arguments) {
    std::vector<Part> parts;
    if (arguments.along.empty()) {
        parts.push_back({"", compare(runs, arguments.by, arguments.metrics), {}});
    } else {
        const Along along = arguments.along == "segments"     ? Along::segments
                            : arguments.along == "overwrites" ? Along::overwrites
                                                              : Along::distance;
        for (const std::string& metric : arguments.metrics) {
            const Profile counted = profile(runs, along, metric);
            parts.push_back({metric, compare(runs, arguments.by, counted), counted.pooled});
        }
    }
    for (Part& part : parts)
        if (!arguments.sort.empty()) sort_rows(part.table, arguments.sort);
    return parts;
}

Json parts_json(const std::vector<Part>& parts) {
    Json rows = Json::array();
    for (const Part& part : parts) {
        const CompareTable& table = part.table;
        for (const CompareRow& row : table.rows) {
            Json group = Json::object(), values = Json::object(), out = Json::object();
            for (std::size_t i = 0; i < table.by.size(); ++i) {
                Json& value = group[table.by[i]] = nullptr;
                if (row.values[i]) std::visit([&](const auto& v) { value = v; }, *row.values[i]);
            }
            for (std::size_t i = 0; i < table.metrics.size(); ++i)
                values[table.metrics[i]] = {{"mean", row.mean[i]}, {"deviation", row.deviation[i]}, {"runs", row.measured[i]}};
            out["group"] = group;
            if (!part.metric.empty()) out["metric"] = part.metric;
            out[part.metric.empty() ? "metrics" : "columns"] = values;
            out["runs"] = row.count;
            out["without_result"] = row.failed;
            rows.push_back(std::move(out));
        }
    }
    return rows;
}

using Cells = std::vector<std::string>;

std::string aligned(const Cells& header, const std::vector<Cells>& rows) {
    Table table(header);
    for (const Cells& row : rows) table.add(row);
    return table.str(stdout_width());
}

std::string markdown(const Cells& header, const std::vector<Cells>& rows) {
    const auto line = [](const Cells& cells) {
        std::string text = "|";
        for (const std::string& cell : cells) {
            text += ' ';
            for (const char c : cell) text += c == '|' ? "\\|" : std::string(1, c);
            text += " |";
        }
        return text + "\n";
    };
    std::string text = line(header) + fmt::format("|{}\n", fmt::join(Cells(header.size(), "---|"), ""));
    for (const Cells& row : rows) text += line(row);
    return text;
}

std::string parts_text(const std::vector<Part>& parts, bool for_markdown) {
    std::string text;
    for (const Part& part : parts) {
        const CompareTable& table = part.table;
        Cells header = table.by;
        header.insert(header.end(), table.metrics.begin(), table.metrics.end());
        header.push_back("runs");
        std::vector<Cells> rows;
        for (const CompareRow& row : table.rows) {
            Cells cells = row.group;
            for (std::size_t i = 0; i < table.metrics.size(); ++i)
                cells.push_back(cell(row.mean[i], row.deviation[i], row.measured[i]));
            cells.push_back(row.failed > 0 ? fmt::format("{} of {}", row.count, row.count + row.failed)
                                           : std::to_string(row.count));
            rows.push_back(std::move(cells));
        }
        const std::string title = part.metric.empty() ? "" : part.metric + (for_markdown ? "\n\n" : "\n");
        text += (text.empty() ? "" : "\n") + title + (for_markdown ? markdown(header, rows) : aligned(header, rows));
    }
    return text;
}

// Returns all test segments of the runs that have several.
std::vector<std::string> pooled_segments(const std::vector<CollectedRun>& runs) {
    std::vector<std::string> labels;
    std::set<std::string> known;
    for (const CollectedRun& run : runs) {
        const std::vector<std::string> segments = test_segments(run);
        for (const std::string& label : segments)
            if (segments.size() > 1 && known.insert(label).second) labels.push_back(label);
    }
    return labels;
}

// Tells what a reader must know of the numbers, where it matters.
void tell_meaning(const Selection& selection, const Arguments& arguments, const std::vector<Part>& parts) {
    const auto spreads = [](const Part& part) {
        const auto& rows = part.table.rows;
        return std::any_of(rows.begin(), rows.end(), [](const CompareRow& row) {
            return std::any_of(row.deviation.begin(), row.deviation.end(),
                               [](double deviation) { return std::isfinite(deviation); });
        });
    };
    if (std::any_of(parts.begin(), parts.end(), spreads))
        log_info("±: the sample deviation of the runs of a row, beside their mean");
    if (const auto over = averaged_keys(selection.runs, arguments.by, selection.swept); !over.empty())
        log_info("note: averaged over {} too; --by or --where takes them apart", join(over, ", "));

    // A summary over all test questions is over all segments of the test.
    const bool of_summaries = arguments.along.empty();
    const auto of_test = [](const std::string& metric) { return metric.find("test_") != std::string::npos; };
    if (of_summaries && std::any_of(arguments.metrics.begin(), arguments.metrics.end(), of_test))
        if (const auto segments = pooled_segments(selection.runs); !segments.empty())
            log_info("note: averaged over the test segments {}; --segments takes them apart", join_some(segments, 6));
    for (const Part& part : parts)
        if (!part.pooled.empty())
            log_info("note: {}: a column averages over the segments {}", part.metric, join_some(part.pooled, 6));
    const std::vector<std::string> policies = policy_names(selection.runs);
    if (contains(arguments.metrics, "best_policy_accuracy") && !policies.empty())
        log_info("best_policy_accuracy: in each segment the best of {}, on the same questions", join(policies, ", "));
}

void drop_repeats(std::vector<std::string>& list) {
    std::set<std::string> seen;
    std::erase_if(list, [&](const std::string& word) { return !seen.insert(word).second; });
}

ExitCode compare_runs(Arguments arguments) {
    if (arguments.segments) arguments.along = "segments";
    for (auto* list : {&arguments.by, &arguments.metrics, &arguments.over}) drop_repeats(*list);
    for (const std::string& key : arguments.over)
        if (contains(arguments.by, key))
            fail(ExitCode::usage, "{} is in --by and in --best-over: a row for each value, or the best value of each row?", key);
    RunParts read = results_and_questions;
    read.answers = !arguments.along.empty();
    Selection selection = select_runs(arguments.select, read);
    if (arguments.by.empty())
        for (const std::string& key : selection.keys)
            if (!contains(arguments.over, key)) arguments.by.push_back(key);
    if (arguments.metrics.empty()) {
        arguments.metrics = {"test_accuracy"};
        const auto stale = [](const CollectedRun& run) { return may_be_stale(run.record); };
        if (std::any_of(selection.runs.begin(), selection.runs.end(), stale)) arguments.metrics.push_back("test_stale_rate");
        if (arguments.along.empty())
            arguments.metrics.insert(arguments.metrics.end(), {"best_policy_accuracy", "parameters", "state_bytes"});
    }
    count_once(selection, arguments.by, "--by");
    if (!arguments.over.empty()) choose(selection.runs, arguments.by, arguments.over);
    tell_valid(selection.runs, arguments);
    const std::vector<Part> parts = compare_parts(selection.runs, arguments);
    tell_meaning(selection, arguments, parts);
    if (arguments.json) print(parts_json(parts).dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    else print(parts_text(parts, arguments.markdown));
    return ExitCode::ok;
}

}  // namespace

void add_compare(CLI::App& app, Session& session) {
    auto arguments = std::make_shared<Arguments>();
    CLI::App* verb =
        app.add_subcommand("compare", "compare results of sweeps by config keys: mean ± deviation over the rest (seeds)");
    add_select(*verb, arguments->select);
    const auto add_list = [&](const char* name, std::vector<std::string>& list, const char* meaning) {
        verb->add_option(name, list, meaning)->delimiter(',')->allow_extra_args(false);
    };
    add_list("--by", arguments->by,
             "config keys, or names of summary values (state_bytes), separated by commas; by default the keys that differ");
    add_list("--metric", arguments->metrics, "summary values, separated by commas, such as test_accuracy,seconds");
    add_list("--best-over", arguments->over, "keep of each group only the best value of these keys, by the mean valid accuracy");
    verb->add_option("--sort", arguments->sort, "sort by a column; -column sorts from high to low");
    CLI::Option* along =
        verb->add_option("--along", arguments->along, "a column for each kind of question: segments, overwrites or distance");
    along->check(CLI::IsMember({"segments", "overwrites", "distance"}));
    verb->add_flag("--segments", arguments->segments, "short for --along segments: accuracy and stale rate by test segment")
        ->excludes(along);
    CLI::Option* json = verb->add_flag("--json", arguments->json, "print JSON");
    verb->add_flag("--markdown", arguments->markdown, "as tables for a page")->excludes(json);
    verb->callback([arguments, &session] { session.action = [arguments] { return compare_runs(*arguments); }; });
}

}  // namespace palimpsest::cli
