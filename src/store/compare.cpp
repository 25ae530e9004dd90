#include "store/compare.h"

#include "core/error.h"
#include "core/text.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>

namespace palimpsest {
namespace {

struct Spread {
    double mean = not_a_number, deviation = not_a_number;  // the sample's
    std::size_t count = 0;
};

// Of the finite values.
Spread spread(const std::vector<double>& values) {
    Spread out;
    double sum = 0, squares = 0;
    for (const double v : values) {
        if (!std::isfinite(v)) continue;
        sum += v;
        ++out.count;
    }
    if (out.count == 0) return out;
    out.mean = sum / static_cast<double>(out.count);
    for (const double v : values) {
        if (std::isfinite(v)) squares += (v - out.mean) * (v - out.mean);
    }
    if (out.count > 1) out.deviation = std::sqrt(squares / static_cast<double>(out.count - 1));
    return out;
}

using Group = std::vector<std::string>;
using Members = std::vector<std::size_t>;  // numbers of runs

Group values_of(const CollectedRun& run, const std::vector<std::string>& keys) {
    Group group;
    for (const std::string& key : keys) group.push_back(value_of(run, key));
    return group;
}

// Runs by their values of the keys, in order of first appearance.
std::vector<std::pair<Group, Members>> grouped(const std::vector<CollectedRun>& runs, const Members& members,
                                               const std::vector<std::string>& keys) {
    std::vector<std::pair<Group, Members>> groups;
    std::map<Group, std::size_t> places;
    for (const std::size_t run : members) {
        Group group = values_of(runs[run], keys);
        const auto [place, is_new] = places.try_emplace(group, groups.size());
        if (is_new) groups.emplace_back(std::move(group), Members{});
        groups[place->second].second.push_back(run);
    }
    return groups;
}

Members all_of(const std::vector<CollectedRun>& runs) {
    Members members;
    for (std::size_t i = 0; i < runs.size(); ++i) members.push_back(i);
    return members;
}

using Results = std::vector<const std::map<std::string, double>*>;  // of each run, by column

Results summaries(const std::vector<CollectedRun>& runs) {
    Results results;
    for (const CollectedRun& run : runs) results.push_back(&run.record.summary);
    return results;
}

std::vector<double> measured(const Members& members, const std::string& metric, const Results& results) {
    std::vector<double> values;
    for (const std::size_t run : members) {
        if (const auto found = results[run]->find(metric); found != results[run]->end()) values.push_back(found->second);
    }
    return values;
}

CompareTable table_of(const std::vector<CollectedRun>& runs, const std::vector<std::string>& by,
                      const std::vector<std::string>& metrics, const Results& results) {
    std::vector<std::string> known = config_keys(runs);
    for (std::string& name : summary_names(runs)) known.push_back(std::move(name));
    check_known("config key", by, known);
    CompareTable table{by, metrics, {}};
    for (auto& [group, members] : grouped(runs, all_of(runs), by)) {
        CompareRow row;
        row.group = std::move(group);
        for (const std::string& key : by) row.values.push_back(value_under(runs[members.front()], key));
        for (const std::size_t run : members) ++(results[run]->empty() ? row.failed : row.count);
        for (const std::string& metric : metrics) {
            const Spread found = spread(measured(members, metric, results));
            row.mean.push_back(found.mean);
            row.deviation.push_back(found.deviation);
            row.measured.push_back(found.count);
        }
        table.rows.push_back(std::move(row));
    }
    return table;
}

}  // namespace

CompareTable compare(const std::vector<CollectedRun>& runs, const std::vector<std::string>& by,
                     const std::vector<std::string>& metrics) {
    // Before the first run has ended there is nothing to name, and an empty table says so better than an error.
    if (const std::vector<std::string> names = summary_names(runs); !names.empty()) check_known("summary value", metrics, names);
    return table_of(runs, by, metrics, summaries(runs));
}

CompareTable compare(const std::vector<CollectedRun>& runs, const std::vector<std::string>& by, const Profile& profile) {
    PALIMPSEST_ASSERT(profile.values.size() == runs.size(), "{} runs, profiles of {}", runs.size(), profile.values.size());
    Results results;
    for (const auto& values : profile.values) results.push_back(&values);
    return table_of(runs, by, profile.columns, results);
}

void sort_rows(CompareTable& table, const std::string& column) {
    const bool down = column.starts_with("-");
    const std::string name = column.substr(down ? 1 : 0);
    std::vector<std::string> names = table.by;
    names.insert(names.end(), table.metrics.begin(), table.metrics.end());
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
        const std::optional<std::string> near = closest(name, names);
        fail(ExitCode::usage, "the table has no column '{}'{} There are: {}", name,
             near ? fmt::format("; did you mean '{}'?", *near) : ".", join(names, ", "));
    }
    const auto place = static_cast<std::size_t>(found - names.begin()), keys = table.by.size();
    // Numbers, then words, then nothing; only numbers and words among themselves are turned round.
    using Rank = std::tuple<int, double, std::string>;
    const auto rank = [&](const CompareRow& row) -> Rank {
        if (place >= keys) return std::isnan(row.mean[place - keys]) ? Rank{2, 0, ""} : Rank{0, row.mean[place - keys], ""};
        const std::string& value = row.group[place];
        if (const auto parsed = number_of(value)) return {0, *parsed, ""};
        return {value.empty() ? 2 : 1, 0, value};
    };
    std::stable_sort(table.rows.begin(), table.rows.end(), [&](const CompareRow& a, const CompareRow& b) {
        const Rank x = rank(a), y = rank(b);
        return down && std::get<0>(x) == std::get<0>(y) ? y < x : x < y;
    });
}

namespace {

// Choosing the best of these would pick luck, not a setting.
void check_settings(const std::vector<std::string>& over) {
    for (const std::string& key : over) {
        if (key == "seed")
            fail(ExitCode::usage, "--best-over seed would pick luck: a seed is no setting. The mean over seeds is taken by itself");
        if (!makes_another_run(key)) fail(ExitCode::usage, "--best-over {} would pick luck: {} makes no other run", key, key);
    }
}

// The candidates of one choice: the values tried, and their runs.
class Choice {
public:
    Choice(const std::vector<CollectedRun>& runs, std::vector<std::pair<Group, Members>> candidates,
           const std::vector<std::string>& over)
        : runs_(runs), candidates_(std::move(candidates)), over_(over), keys_(join(over, ", ")) {
        const Results results = summaries(runs);
        for (const auto& [value, tried] : candidates_) judged_.push_back(spread(measured(tried, selection_metric, results)));
        for (std::size_t c = 1; c < judged_.size(); ++c) {
            if (mean(c) > mean(winner_) || (std::isnan(mean(winner_)) && !std::isnan(mean(c)))) winner_ = c;
        }
    }

    const Members& winners() const { return candidates_[winner_].second; }

    // Each candidate must have answered the same questions (of several tasks: each of them all).
    void check_questions(const std::string& who) const {
        const auto key = differing_question();
        if (key)
            fail(ExitCode::usage,
                 "{}the values of {} were tried on different questions ({} differs), so their accuracies do not compare; "
                 "--by or --where takes them apart",
                 who, keys_, *key);
    }

    std::vector<std::string> notes(const std::string& who) const {
        const auto& [value, tried] = candidates_[winner_];
        if (std::isnan(mean(winner_))) return {fmt::format("{}no run has a {} yet: nothing was chosen", who, selection_metric)};
        std::vector<std::string> notes, tied;
        for (std::size_t c = 0; c < candidates_.size(); ++c) {
            if (std::abs(mean(c) - mean(winner_)) < 1e-12) tied.push_back(join(candidates_[c].first, ", "));
        }
        if (tied.size() > 1)
            notes.push_back(
                fmt::format("{}{} {} tie at {:.4f}; the first is shown", who, keys_, join(tied, " and "), mean(winner_)));
        for (std::size_t k = 0; k < over_.size(); ++k) {
            std::set<double> numbers;
            for (const auto& candidate : candidates_) {
                if (const auto parsed = number_of(candidate.first[k])) numbers.insert(*parsed);
            }
            const auto chosen = number_of(value[k]);
            if (!chosen || numbers.size() < 2) continue;
            const char* end = *chosen == *numbers.rbegin() ? "largest" : *chosen == *numbers.begin() ? "smallest" : nullptr;
            if (end) notes.push_back(fmt::format("{}best {} {} is the {} tried", who, over_[k], value[k], end));
        }
        if (const std::size_t with = judged_[winner_].count; with < tried.size())
            notes.push_back(
                fmt::format("{}{} {} was judged by {} of its {} runs", who, keys_, join(value, ", "), with, tried.size()));
        if (const std::vector<std::string> others = other_differences(); !others.empty())
            notes.push_back(fmt::format("{}the candidates differ in {} too", who, join(others, ", ")));
        return notes;
    }

private:
    std::optional<std::string> differing_question() const {
        using Asked = std::map<std::string, std::set<std::string>>;  // under each key, the values of a candidate's runs
        std::vector<Asked> asked;
        for (const auto& [value, tried] : candidates_) {
            Asked& values = asked.emplace_back();
            for (const std::size_t run : tried)
                for (const auto& [key, text] : valid_questions(runs_[run])) values[key].insert(text);
            if (values.empty()) asked.pop_back();  // their configs cannot be read
        }
        std::set<std::string> differing;
        for (const Asked& other : asked) {
            const Asked& first = asked.front();
            for (const Asked* one : {&first, &other})
                for (const auto& [key, values] : *one) {
                    const auto a = first.find(key), b = other.find(key);
                    if (a == first.end() || b == other.end() || a->second != b->second) differing.insert(key);
                }
        }
        if (differing.count("task.name") > 0) return "task.name";
        if (!differing.empty()) return *differing.begin();
        return std::nullopt;
    }

    // Settings beside the chosen ones that are not the same for all candidates: the choice is one of these too.
    std::vector<std::string> other_differences() const {
        std::vector<std::string> keys;
        for (const auto& [key, first] : runs_[winners().front()].record.config) {
            if (key == "seed" || !makes_another_run(key) || contains(over_, key)) continue;
            std::set<std::set<std::string>> values;
            bool everywhere = true;
            for (const auto& [value, tried] : candidates_) {
                std::set<std::string> here;
                for (const std::size_t run : tried) here.insert(value_of(runs_[run], key));
                everywhere = everywhere && here.count("") == 0;
                values.insert(std::move(here));
            }
            if (everywhere && values.size() > 1) keys.push_back(key);
        }
        return keys;
    }

    double mean(std::size_t candidate) const { return judged_[candidate].mean; }

    const std::vector<CollectedRun>& runs_;
    std::vector<std::pair<Group, Members>> candidates_;
    const std::vector<std::string>& over_;
    std::string keys_;
    std::vector<Spread> judged_;
    std::size_t winner_ = 0;
};

}  // namespace

Best best_over(const std::vector<CollectedRun>& runs, const std::vector<std::string>& by, const std::vector<std::string>& over) {
    const std::vector<std::string> known = config_keys(runs);
    check_known("config key", by, known);
    check_known("config key", over, known);
    check_settings(over);
    Best best;
    for (const auto& [group, members] : grouped(runs, all_of(runs), by)) {
        auto candidates = grouped(runs, members, over);
        best.candidates.push_back(candidates.size());
        const std::string who = group.empty() ? "" : join(group, " ") + ": ";
        const Choice choice(runs, std::move(candidates), over);
        choice.check_questions(who);
        for (const std::size_t run : choice.winners()) best.runs.push_back(runs[run]);
        for (std::string& note : choice.notes(who)) best.notes.push_back(std::move(note));
    }
    return best;
}

}  // namespace palimpsest
