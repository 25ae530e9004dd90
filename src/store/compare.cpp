#include "store/compare.h"

#include "core/error.h"
#include "core/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <set>

namespace palimpsest {
namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

std::optional<double> number(const std::string& text) {
    double value = 0;
    const char* end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, value);
    return parsed.ec == std::errc() && parsed.ptr == end && !text.empty() ? std::optional(value) : std::nullopt;
}

Attribute typed(const std::string& text) {
    std::int64_t integer = 0;
    const char* end = text.data() + text.size();
    if (const auto parsed = std::from_chars(text.data(), end, integer); parsed.ec == std::errc() && parsed.ptr == end) return integer;
    if (const auto value = number(text)) return *value;
    return text;
}

void check_known(const std::string& what, const std::vector<std::string>& wanted, const std::vector<std::string>& names) {
    for (const std::string& name : wanted) {
        if (std::find(names.begin(), names.end(), name) != names.end()) continue;
        const std::optional<std::string> near = closest(name, names);
        const std::string hint = near ? fmt::format("; did you mean '{}'?", *near) : "";
        fail(ExitCode::usage, "no run has the {} '{}'{} There are: {}", what, name, near ? hint : ".", names.empty() ? "none" : join(names, ", "));
    }
}

// Mean and sample deviation of the finite values.
std::pair<double, double> spread(const std::vector<double>& values) {
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

using Group = std::vector<std::string>;

Group values_of(const CollectedRun& run, const std::vector<std::string>& keys) {
    Group group;
    for (const std::string& key : keys) group.push_back(value_of(run, key));
    return group;
}

// Runs by their values of the keys, in order of first appearance.
std::vector<std::pair<Group, std::vector<const CollectedRun*>>> grouped(const std::vector<const CollectedRun*>& runs,
                                                                         const std::vector<std::string>& keys) {
    std::vector<std::pair<Group, std::vector<const CollectedRun*>>> groups;
    for (const CollectedRun* run : runs) {
        const Group group = values_of(*run, keys);
        auto place = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == group; });
        if (place == groups.end()) place = groups.insert(place, {group, {}});
        place->second.push_back(run);
    }
    return groups;
}

std::vector<const CollectedRun*> pointers(const std::vector<CollectedRun>& runs) {
    std::vector<const CollectedRun*> out;
    for (const CollectedRun& run : runs) out.push_back(&run);
    return out;
}

std::vector<double> measured(const std::vector<const CollectedRun*>& runs, const std::string& metric) {
    std::vector<double> values;
    for (const CollectedRun* run : runs) {
        if (const auto found = run->record.summary.find(metric); found != run->record.summary.end()) values.push_back(found->second);
    }
    return values;
}

// Keys that make no other run tell nothing about it.
bool worth_showing(const std::string& key) {
    static const std::set<std::string> hidden = {"name", "seed", "run.device", "run.threads", "run.log_every", "run.flush_seconds", "run.checkpoint_every"};
    return hidden.count(key) == 0;
}

// At commas outside of brackets: "[base_conv, softmax],delta" has two items.
std::vector<std::string> split_values(const std::string& text) {
    std::vector<std::string> items = {""};
    int depth = 0;
    for (const char c : text) {
        depth += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
        if (c == ',' && depth == 0) items.emplace_back();
        else if (c != ' ') items.back() += c;
    }
    return items;
}

bool same_value(std::string value, const std::string& wanted) {
    std::erase(value, ' ');
    const auto a = number(value), b = number(wanted);
    return a && b ? *a == *b : value == wanted;
}

}  // namespace

std::string in_words(const Attribute& value) {
    return std::visit([](const auto& v) { return fmt::format("{}", v); }, value);
}

std::optional<Attribute> config_value(const CollectedRun& run, const std::string& key) {
    const auto find = [&](const std::string& wanted) -> const Attribute* {
        const auto& config = run.record.config;
        const auto entry = std::find_if(config.begin(), config.end(), [&](const auto& e) { return e.first == wanted; });
        return entry == config.end() ? nullptr : &entry->second;
    };
    if (const Attribute* value = find(key)) return *value;
    for (const auto& [name, text] : run.run.varied) {
        if (name == key) return typed(text);
    }
    if (const Attribute* name = find(key + ".name")) return *name;
    return std::nullopt;
}

std::string value_of(const CollectedRun& run, const std::string& key) {
    const std::optional<Attribute> value = config_value(run, key);
    return value ? in_words(*value) : "";
}

std::vector<std::string> config_keys(const std::vector<CollectedRun>& runs) {
    std::set<std::string> keys;
    for (const CollectedRun& run : runs) {
        for (const auto& [key, value] : run.record.config) keys.insert(key);
        for (const auto& [key, value] : run.run.varied) keys.insert(key);
    }
    return {keys.begin(), keys.end()};
}

bool follows(const std::vector<CollectedRun>& runs, const std::string& key, const std::vector<std::string>& from) {
    std::map<Group, std::string> seen;
    return std::all_of(runs.begin(), runs.end(), [&](const CollectedRun& run) {
        const std::string value = value_of(run, key);
        return seen.emplace(values_of(run, from), value).first->second == value;
    });
}

std::vector<std::string> differing_keys(const std::vector<CollectedRun>& runs, const std::vector<std::string>& swept) {
    std::vector<std::string> order, chosen;
    std::map<std::string, std::set<Attribute>> values;
    std::map<std::string, std::size_t> holders;
    std::size_t present = 0;
    for (const CollectedRun& run : runs) {
        present += run.present ? 1 : 0;
        for (const auto& [key, value] : run.record.config) {
            if (values[key].empty()) order.push_back(key);
            values[key].insert(value);
            ++holders[key];
        }
    }
    std::erase_if(order, [&](const std::string& key) { return !worth_showing(key) || std::find(swept.begin(), swept.end(), key) != swept.end(); });
    for (const std::string& key : swept) {
        if (key != "seed" && !follows(runs, key, {})) chosen.push_back(key);
    }
    std::vector<CollectedRun> read;  // of the others only the plan's part is known
    std::copy_if(runs.begin(), runs.end(), std::back_inserter(read), [](const CollectedRun& run) { return run.present; });
    const std::vector<std::string> of_sweep = chosen;
    for (const std::string& key : order) {
        if (values[key].size() > 1 && !follows(read, key, of_sweep)) chosen.push_back(key);
    }
    for (const std::string& key : order) {
        if (values[key].size() == 1 && holders[key] < present && !follows(read, key, chosen)) chosen.push_back(key);
    }
    return chosen;
}

std::vector<CollectedRun> filter(const std::vector<CollectedRun>& runs, const std::string& where) {
    const std::size_t equals = where.find('=');
    if (equals == std::string::npos || equals == 0) fail(ExitCode::usage, "'{}' chooses nothing; write key=value, such as model.mixer=delta", where);
    const std::string key = where.substr(0, equals);
    check_known("config key", {key}, config_keys(runs));
    const std::vector<std::string> wanted = split_values(where.substr(equals + 1));
    std::vector<CollectedRun> kept;
    std::vector<std::string> values;
    for (const CollectedRun& run : runs) {
        const std::string value = value_of(run, key);
        if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
        const auto matches = [&](const std::string& item) { return same_value(value, item); };
        if (std::any_of(wanted.begin(), wanted.end(), matches)) kept.push_back(run);
    }
    if (kept.empty()) fail(ExitCode::usage, "no run has {}; its values are: {}", where, join(values, ", "));
    return kept;
}

CompareTable compare(const std::vector<CollectedRun>& runs, const std::vector<std::string>& by, const std::vector<std::string>& metrics) {
    check_known("config key", by, config_keys(runs));
    std::set<std::string> names;
    for (const CollectedRun& run : runs) {
        for (const auto& [name, value] : run.record.summary) names.insert(name);
    }
    // Before the first run has ended there is nothing to name, and an empty table says so better than an error.
    if (!names.empty()) check_known("summary value", metrics, {names.begin(), names.end()});

    CompareTable table{by, metrics, {}};
    for (const auto& [group, members] : grouped(pointers(runs), by)) {
        CompareRow row;
        row.group = group;
        for (const CollectedRun* run : members) ++(run->record.summary.empty() ? row.failed : row.count);
        for (const std::string& metric : metrics) {
            const auto [mean, deviation] = spread(measured(members, metric));
            row.mean.push_back(mean);
            row.deviation.push_back(deviation);
        }
        table.rows.push_back(std::move(row));
    }
    return table;
}

void sort_rows(CompareTable& table, const std::string& column) {
    const bool down = column.starts_with("-");
    const std::string name = column.substr(down ? 1 : 0);
    std::vector<std::string> names = table.by;
    names.insert(names.end(), table.metrics.begin(), table.metrics.end());
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
        const std::optional<std::string> near = closest(name, names);
        fail(ExitCode::usage, "the table has no column '{}'{} There are: {}", name, near ? fmt::format("; did you mean '{}'?", *near) : ".", join(names, ", "));
    }
    const auto place = static_cast<std::size_t>(found - names.begin()), keys = table.by.size();
    // Numbers, then words, then nothing; only numbers and words among themselves are turned round.
    struct Rank {
        int kind;
        double number;
        std::string word;
    };
    const auto rank = [&](const CompareRow& row) -> Rank {
        if (place >= keys) {
            const double mean = row.mean[place - keys];
            return std::isnan(mean) ? Rank{2, 0, ""} : Rank{0, mean, ""};
        }
        const std::string& value = row.group[place];
        if (const auto parsed = number(value)) return {0, *parsed, ""};
        return {value.empty() ? 2 : 1, 0, value};
    };
    std::stable_sort(table.rows.begin(), table.rows.end(), [&](const CompareRow& a, const CompareRow& b) {
        const Rank x = rank(a), y = rank(b);
        if (x.kind != y.kind) return x.kind < y.kind;
        const Rank &less = down ? y : x, &more = down ? x : y;
        return less.kind == 0 ? less.number < more.number : less.word < more.word;
    });
}

Best best_over(const std::vector<CollectedRun>& runs, const std::vector<std::string>& by, const std::vector<std::string>& over) {
    const std::vector<std::string> known = config_keys(runs);
    check_known("config key", by, known);
    check_known("config key", over, known);
    Best best;
    for (const auto& [group, members] : grouped(pointers(runs), by)) {
        const auto candidates = grouped(members, over);
        const std::string who = group.empty() ? "" : join(group, " ") + ": ", keys = join(over, ", ");
        std::size_t winner = 0;
        std::vector<double> means;
        for (const auto& [value, tried] : candidates) means.push_back(spread(measured(tried, selection_metric)).first);
        for (std::size_t c = 1; c < means.size(); ++c) {
            if (means[c] > means[winner] || (std::isnan(means[winner]) && !std::isnan(means[c]))) winner = c;
        }
        const auto& [value, tried] = candidates[winner];
        best.candidates.push_back(candidates.size());
        for (const CollectedRun* run : tried) best.runs.push_back(*run);
        if (std::isnan(means[winner])) {
            best.notes.push_back(fmt::format("{}no run has a {} yet: nothing was chosen", who, selection_metric));
            continue;
        }
        std::vector<std::string> tied;
        for (std::size_t c = 0; c < means.size(); ++c) {
            if (std::abs(means[c] - means[winner]) < 1e-12) tied.push_back(join(candidates[c].first, ", "));
        }
        if (tied.size() > 1)
            best.notes.push_back(fmt::format("{}{} {} tie at {:.4f}; the first is shown", who, keys, join(tied, " and "), means[winner]));
        for (std::size_t k = 0; k < over.size(); ++k) {
            std::set<double> numbers;
            for (const auto& candidate : candidates) {
                if (const auto parsed = number(candidate.first[k])) numbers.insert(*parsed);
            }
            const auto chosen = number(value[k]);
            if (!chosen || numbers.size() < 2) continue;
            const char* end = *chosen == *numbers.rbegin() ? "largest" : *chosen == *numbers.begin() ? "smallest" : nullptr;
            if (end) best.notes.push_back(fmt::format("{}best {} {} is the {} tried", who, over[k], value[k], end));
        }
        const std::size_t with = measured(tried, selection_metric).size();
        if (with < tried.size())
            best.notes.push_back(fmt::format("{}{} {} was judged by {} of its {} runs", who, keys, join(value, ", "), with, tried.size()));
    }
    return best;
}

}  // namespace palimpsest
