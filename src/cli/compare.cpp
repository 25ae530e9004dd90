// palimpsest compare SWEEP: mean, deviation and count over seeds.
#include "cli/app.h"
#include "cli/output.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cmath>
#include <memory>

namespace palimpsest::cli {
namespace {

struct Arguments {
    std::string sweep, results = "results";
    std::vector<std::string> by, metrics;
    bool json = false;
};

std::string cell(double mean, double deviation, std::size_t count) {
    if (!std::isfinite(mean) || count < 2 || !std::isfinite(deviation)) return value_text(mean);
    // Both with the digits of the mean.
    return std::abs(mean) < 1000 ? fmt::format("{:.3f} ± {:.3f}", mean, deviation) : fmt::format("{:.0f} ± {:.0f}", mean, deviation);
}

nlohmann::json rows_json(const CompareTable& table) {
    nlohmann::json rows = nlohmann::json::array();
    for (const CompareRow& row : table.rows) {
        nlohmann::json group = nlohmann::json::object(), values = nlohmann::json::object();
        for (std::size_t i = 0; i < table.by.size(); ++i) group[table.by[i]] = row.group[i];
        for (std::size_t i = 0; i < table.metrics.size(); ++i) values[table.metrics[i]] = {{"mean", row.mean[i]}, {"deviation", row.deviation[i]}};
        rows.push_back({{"group", group}, {"metrics", values}, {"runs", row.count}, {"without_result", row.failed}});
    }
    return rows;
}

ExitCode compare_runs(Arguments arguments) {
    const SweepRuns sweep = find_sweep(arguments.sweep, arguments.results);
    if (arguments.by.empty()) {
        arguments.by = sweep.varied;
        std::erase(arguments.by, "seed");
    }
    if (arguments.metrics.empty()) arguments.metrics = {"test_accuracy", "test_stale_rate", "best_policy_accuracy", "parameters", "state_bytes"};
    const CompareTable table = compare(sweep.runs, arguments.by, arguments.metrics);
    for (const CollectedRun& run : sweep.runs)
        if (!run.present && run.state != RunState::fresh) log_warning("{}", run.problem);
    if (arguments.json) {
        print_json(rows_json(table));
        return ExitCode::ok;
    }
    std::vector<std::string> header = table.by;
    header.insert(header.end(), table.metrics.begin(), table.metrics.end());
    header.push_back("runs");
    Table out(header);
    for (const CompareRow& row : table.rows) {
        std::vector<std::string> cells = row.group;
        for (std::size_t i = 0; i < table.metrics.size(); ++i) cells.push_back(cell(row.mean[i], row.deviation[i], row.count));
        cells.push_back(row.failed > 0 ? fmt::format("{} of {}", row.count, row.count + row.failed) : std::to_string(row.count));
        out.add(std::move(cells));
    }
    print(out.str());
    return ExitCode::ok;
}

}  // namespace

void add_compare(CLI::App& app, Session& session) {
    auto arguments = std::make_shared<Arguments>();
    CLI::App* verb = app.add_subcommand("compare", "a sweep's results by config keys: mean ± deviation over the rest (seeds)");
    verb->add_option("SWEEP", arguments->sweep, "folder of a sweep, or its name below the results")->required();
    verb->add_option("--by", arguments->by, "config keys, separated by commas; by default those that differ")->delimiter(',');
    verb->add_option("--metric", arguments->metrics, "summary values, separated by commas, such as test_accuracy,seconds")->delimiter(',');
    verb->add_option("--results", arguments->results, "where to look for the name")->capture_default_str();
    verb->add_flag("--json", arguments->json, "as JSON");
    verb->callback([arguments, &session] { session.action = [arguments] { return compare_runs(*arguments); }; });
}

}  // namespace palimpsest::cli
