#include "sweep/report.h"

#include "core/file.h"
#include "core/text.h"
#include "store/compare.h"

#include <algorithm>
#include <cmath>

namespace palimpsest {
namespace {

// The line of a message that says what was wrong: the first error of a report, else the first line.
std::string cause_of(const std::string& message) {
    const std::size_t error = message.find(": error: "), begin = error == std::string::npos ? error : message.rfind('\n', error);
    const std::size_t from = begin == std::string::npos ? 0 : begin + 1;
    return message.substr(from, message.find('\n', from) - from);
}

// What was swept but the seed, and whatever else differs between the runs of a row, such as options that a list of layers sets: a
// mean over different models would be no mean over seeds.
std::vector<std::string> rows_of(const std::vector<CollectedRun>& runs, std::vector<std::string> varied) {
    std::erase(varied, "seed");
    const std::vector<std::string> others = averaged_keys(runs, varied, varied);
    varied.insert(varied.end(), others.begin(), others.end());
    return varied;
}

}  // namespace

std::string mean_text(double mean, double deviation) {
    if (!std::isfinite(mean)) return "-";
    return std::isfinite(deviation) ? fmt::format("{:.3f} ± {:.3f}", mean, deviation) : fmt::format("{:.3f}", mean);
}

ResultTable result_table(const std::vector<CollectedRun>& runs, const std::vector<std::string>& varied, std::size_t width) {
    const auto any = [&](const auto& holds) { return std::any_of(runs.begin(), runs.end(), holds); };
    if (!any([](const CollectedRun& run) { return !run.record.summary.empty(); })) return {};
    const bool stale = any([](const CollectedRun& run) { return may_be_stale(run.record); });
    const std::vector<std::string> by = rows_of(runs, varied);
    std::vector<std::string> metrics = {"test_accuracy"}, header = by;
    if (stale) metrics.push_back("test_stale_rate");
    metrics.push_back("best_policy_accuracy");
    const CompareTable results = compare(runs, by, metrics);
    header.push_back("accuracy");
    if (stale) header.push_back("stale");
    for (const char* column : {"best policy", "runs"}) header.push_back(column);
    Table table(header);
    bool several = false;
    for (const CompareRow& row : results.rows) {
        std::vector<std::string> cells = row.group;
        for (std::size_t m = 0; m < row.mean.size(); ++m)
            cells.push_back(mean_text(row.mean[m], m + 1 < row.mean.size() ? row.deviation[m] : NAN));
        cells.push_back(row.failed > 0 ? fmt::format("{} of {}", row.count, row.count + row.failed) : std::to_string(row.count));
        table.add(std::move(cells));
        several = several || std::isfinite(row.deviation[0]);
    }
    std::string legend = "accuracy: of all test questions";
    if (several) legend += "; ±: the sample deviation of a row's runs, beside their mean";
    if (stale) legend += "; stale: share of the answers that were true before";
    if (const std::vector<std::string> policies = policy_names(runs); !policies.empty())
        legend += "; best policy: of " + join(policies, ", ");
    return {table.str(width), legend};
}

std::string failure_table(const std::vector<RunOutcome>& outcomes) {
    Table table({"run", "error", "log", "try again"});
    for (const RunOutcome& outcome : outcomes) {
        if (outcome.state != RunState::failed) continue;
        const std::string log = outcome.folder + "/run.log";
        const bool begun = file_exists(log);
        table.add({short_id(outcome.run_id) + " " + outcome.human, cause_of(outcome.message), begun ? log : "-",
                   begun ? resume_command(outcome.folder) : "-"});
    }
    return table.empty() ? "" : table.str();
}

}  // namespace palimpsest
