// palimpsest compare SWEEP…: mean, deviation and count over seeds.
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
    if (deviation == 0 && mean == std::round(mean) && std::abs(mean) >= 1000) return value_text(mean);  // a size, not a measurement
    // Both with the digits of the mean.
    return std::abs(mean) < 1000 ? fmt::format("{:.3f} ± {:.3f}", mean, deviation) : fmt::format("{:.0f} ± {:.0f}", mean, deviation);
}

// Keeps the best runs of each group, and says how they were chosen. The keys chosen over become columns.
void choose(std::vector<CollectedRun>& runs, std::vector<std::string>& by, const std::vector<std::string>& over) {
    for (const std::string& key : over) std::erase(by, key);
    Best best = best_over(runs, by, over);
    const auto [fewest, most] = std::minmax_element(best.candidates.begin(), best.candidates.end());
    const auto count = static_cast<std::int64_t>(*most);
    log_info("{}: chosen by the mean {} (the valid split, never the test questions) of {}", join(over, ", "), selection_metric,
             *fewest == *most ? plural(count, "candidate") : fmt::format("{} to {}", *fewest, plural(count, "candidate")));
    for (const std::string& note : best.notes) log_info("note: {}", note);
    runs = std::move(best.runs);
    by.insert(by.end(), over.begin(), over.end());
}

// Deviations then hold more than the seeds'.
void tell_averaged(const Selection& selection, const std::vector<std::string>& by) {
    std::vector<std::string> over;
    for (const std::string& key : selection.keys)
        if (key != "sweep" && !follows(selection.runs, key, by)) over.push_back(key);
    if (!over.empty()) log_info("note: averaged over {} too; --by or --where takes them apart", join(over, ", "));
}

// One table a metric: of the summaries all together, along the questions each by itself.
struct Part {
    std::string metric;  // "" for all summaries
    CompareTable table;
};

std::vector<Part> compare_parts(const std::vector<CollectedRun>& runs, const Arguments& arguments) {
    std::vector<Part> parts;
    if (arguments.along.empty()) {
        parts.push_back({"", compare(runs, arguments.by, arguments.metrics)});
    } else {
        const Along along = arguments.along == "segments" ? Along::segments : arguments.along == "overwrites" ? Along::overwrites : Along::distance;
        for (const std::string& metric : arguments.metrics) {
            const Profile counted = profile(runs, along, metric);
            parts.push_back({metric, compare(counted.runs, arguments.by, counted.columns)});
        }
    }
    for (Part& part : parts)
        if (!arguments.sort.empty()) sort_rows(part.table, arguments.sort);
    return parts;
}

Json parts_json(const std::vector<Part>& parts) {
    Json rows = Json::array();
    for (const auto& [metric, table] : parts) {
        for (const CompareRow& row : table.rows) {
            Json group = Json::object(), values = Json::object(), out = Json::object();
            for (std::size_t i = 0; i < table.by.size(); ++i) group[table.by[i]] = row.group[i];
            for (std::size_t i = 0; i < table.metrics.size(); ++i) values[table.metrics[i]] = {{"mean", row.mean[i]}, {"deviation", row.deviation[i]}};
            out["group"] = group;
            if (!metric.empty()) out["metric"] = metric;
            out[metric.empty() ? "metrics" : "columns"] = values;
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
    return table.str();
}

std::string markdown(const Cells& header, const std::vector<Cells>& rows) {
    std::string text = fmt::format("| {} |\n|{}\n", fmt::join(header, " | "), fmt::join(Cells(header.size(), "---|"), ""));
    for (const Cells& row : rows) text += fmt::format("| {} |\n", fmt::join(row, " | "));
    return text;
}

std::string parts_text(const std::vector<Part>& parts, bool for_markdown) {
    std::string text;
    for (const auto& [metric, table] : parts) {
        Cells header = table.by;
        header.insert(header.end(), table.metrics.begin(), table.metrics.end());
        header.push_back("runs");
        std::vector<Cells> rows;
        for (const CompareRow& row : table.rows) {
            Cells cells = row.group;
            for (std::size_t i = 0; i < table.metrics.size(); ++i) cells.push_back(cell(row.mean[i], row.deviation[i], row.count));
            cells.push_back(row.failed > 0 ? fmt::format("{} of {}", row.count, row.count + row.failed) : std::to_string(row.count));
            rows.push_back(std::move(cells));
        }
        const std::string title = metric.empty() ? "" : metric + (for_markdown ? "\n\n" : "\n");
        text += (text.empty() ? "" : "\n") + title + (for_markdown ? markdown(header, rows) : aligned(header, rows));
    }
    return text;
}

ExitCode compare_runs(Arguments arguments) {
    Selection selection = select_runs(arguments.select);
    if (arguments.by.empty()) arguments.by = selection.keys;
    if (arguments.segments) arguments.along = "segments";
    if (arguments.metrics.empty())
        arguments.metrics = arguments.along.empty() ? std::vector<std::string>{"test_accuracy", "test_stale_rate", "best_policy_accuracy", "parameters", "state_bytes"}
                                                    : std::vector<std::string>{"test_accuracy", "test_stale_rate"};
    count_once(selection, arguments.by);
    if (!arguments.over.empty()) choose(selection.runs, arguments.by, arguments.over);
    tell_averaged(selection, arguments.by);
    const std::vector<Part> parts = compare_parts(selection.runs, arguments);
    if (arguments.json) print(parts_json(parts).dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    else print(parts_text(parts, arguments.markdown));
    return ExitCode::ok;
}

}  // namespace

void add_compare(CLI::App& app, Session& session) {
    auto arguments = std::make_shared<Arguments>();
    CLI::App* verb = app.add_subcommand("compare", "results of sweeps by config keys: mean ± deviation over the rest (seeds)");
    add_select(*verb, arguments->select);
    const auto add_list = [&](const char* name, std::vector<std::string>& list, const char* meaning) {
        verb->add_option(name, list, meaning)->delimiter(',')->allow_extra_args(false);
    };
    add_list("--by", arguments->by, "config keys, separated by commas; by default those that differ");
    add_list("--metric", arguments->metrics, "summary values, separated by commas, such as test_accuracy,seconds");
    add_list("--best-over", arguments->over, "of each group only the best value of these keys, by the mean valid accuracy");
    verb->add_option("--sort", arguments->sort, "a column; -column sorts from high to low");
    CLI::Option* along = verb->add_option("--along", arguments->along, "a column for each kind of question: segments, overwrites or distance");
    along->check(CLI::IsMember({"segments", "overwrites", "distance"}));
    verb->add_flag("--segments", arguments->segments, "short for --along segments: accuracy and stale rate by test segment")->excludes(along);
    CLI::Option* json = verb->add_flag("--json", arguments->json, "as JSON");
    verb->add_flag("--markdown", arguments->markdown, "as tables for a page")->excludes(json);
    verb->callback([arguments, &session] { session.action = [arguments] { return compare_runs(*arguments); }; });
}

}  // namespace palimpsest::cli
