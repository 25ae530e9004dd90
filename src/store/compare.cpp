#include "core/error.h"
#include "core/text.h"
#include "store/sweep_file.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace palimpsest {
namespace {

// A run's value of a config key, in words; "" where it has none.
std::string value_of(const CollectedRun& run, const std::string& key) {
    for (const auto& [name, value] : run.record.config) {
        if (name == key) return std::visit([](const auto& v) { return fmt::format("{}", v); }, value);
    }
    for (const auto& [name, text] : run.run.varied) {
        if (name == key) return text;
    }
    return "";
}

void check_known(const std::string& what, const std::vector<std::string>& wanted, const std::set<std::string>& known) {
    const std::vector<std::string> names(known.begin(), known.end());
    for (const std::string& name : wanted) {
        if (known.count(name) > 0) continue;
        const std::optional<std::string> near = closest(name, names);
        const std::string hint = near ? fmt::format("; did you mean '{}'?", *near) : "";
        fail(ExitCode::usage, "no run has the {} '{}'{} There are: {}", what, name, near ? hint : ".", names.empty() ? "none" : join(names, ", "));
    }
}

// Mean and sample deviation of the finite values.
std::pair<double, double> spread(const std::vector<double>& values) {
    const double not_a_number = std::numeric_limits<double>::quiet_NaN();
    double sum = 0, squares = 0, count = 0;
    for (const double v : values) {
        if (!std::isfinite(v)) continue;
        sum += v;
        ++count;
    }
    if (count == 0) return {not_a_number, not_a_number};
    const double mean = sum / count;
    for (const double v : values) {
        if (std::isfinite(v)) squares += (v - mean) * (v - mean);
    }
    return {mean, count < 2 ? not_a_number : std::sqrt(squares / (count - 1))};
}

}  // namespace

CompareTable compare(const std::vector<CollectedRun>& runs, const std::vector<std::string>& by, const std::vector<std::string>& metrics) {
    std::set<std::string> keys, names;
    for (const CollectedRun& run : runs) {
        for (const auto& [key, value] : run.record.config) keys.insert(key);
        for (const auto& [key, value] : run.run.varied) keys.insert(key);
        for (const auto& [name, value] : run.record.summary) names.insert(name);
    }
    check_known("config key", by, keys);
    // Before the first run has ended there is nothing to name, and an empty table says so better than an error.
    if (!names.empty()) check_known("summary value", metrics, names);

    CompareTable table{by, metrics, {}};
    std::vector<std::vector<const CollectedRun*>> members;
    for (const CollectedRun& run : runs) {
        std::vector<std::string> group;
        for (const std::string& key : by) group.push_back(value_of(run, key));
        auto row = std::find_if(table.rows.begin(), table.rows.end(), [&](const CompareRow& r) { return r.group == group; });
        if (row == table.rows.end()) {
            CompareRow fresh;
            fresh.group = group;
            row = table.rows.insert(row, std::move(fresh));
            members.emplace_back();
        }
        members[static_cast<std::size_t>(row - table.rows.begin())].push_back(&run);
    }
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
        CompareRow& row = table.rows[i];
        for (const CollectedRun* run : members[i]) ++(run->record.summary.empty() ? row.failed : row.count);
        for (const std::string& metric : metrics) {
            std::vector<double> values;
            for (const CollectedRun* run : members[i]) {
                if (const auto found = run->record.summary.find(metric); found != run->record.summary.end()) values.push_back(found->second);
            }
            const auto [mean, deviation] = spread(values);
            row.mean.push_back(mean);
            row.deviation.push_back(deviation);
        }
    }
    return table;
}

}  // namespace palimpsest
