#include "sweep/report.h"

#include "core/file.h"
#include "core/text.h"
#include "store/compare.h"
#include "sweep/plan.h"

#include <algorithm>
#include <cmath>

namespace palimpsest {
namespace {

// The line of a message that says what was wrong: the first error of a report, else the last line.
std::string cause_of(std::string message) {
    message.erase(message.find_last_not_of(" \n") + 1);
    const std::size_t error = message.find(": error: "), begin = message.rfind('\n', error);
    const std::size_t from = begin == std::string::npos ? 0 : begin + 1;
    return message.substr(from, message.find('\n', from) - from);
}

}  // namespace

std::string mean_text(double mean, double deviation) {
    if (!std::isfinite(mean)) return "-";
    return std::isfinite(deviation) ? fmt::format("{:.3f} ± {:.3f}", mean, deviation) : fmt::format("{:.3f}", mean);
}

std::string result_table(const std::vector<CollectedRun>& runs, const std::vector<std::string>& varied) {
    std::vector<std::string> by = varied;
    std::erase(by, "seed");
    const bool any = std::any_of(runs.begin(), runs.end(), [](const CollectedRun& run) { return !run.record.summary.empty(); });
    if (!any) return "";
    const CompareTable results = compare(runs, by, {"test_accuracy", "test_stale_rate", "best_policy_accuracy"});
    std::vector<std::string> header = by;
    for (const char* column : {"accuracy", "stale", "best policy", "runs"}) header.push_back(column);
    Table table(header);
    for (const CompareRow& row : results.rows) {
        std::vector<std::string> cells = row.group;
        for (std::size_t m = 0; m < row.mean.size(); ++m) cells.push_back(mean_text(row.mean[m], m + 1 < row.mean.size() ? row.deviation[m] : NAN));
        cells.push_back(row.failed > 0 ? fmt::format("{} of {}", row.count, row.count + row.failed) : std::to_string(row.count));
        table.add(std::move(cells));
    }
    return table.str();
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
