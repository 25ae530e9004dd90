#include "store/runs.h"

#include "config/spec.h"
#include "core/error.h"
#include "core/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

namespace palimpsest {
namespace {

using Group = std::vector<std::string>;
Attribute typed(double value) {
    constexpr double exact = 9007199254740992;  // 2^53
    if (value == std::round(value) && std::abs(value) < exact) return static_cast<std::int64_t>(value);
    return value;
}

bool worth_showing(const std::string& key) { return key != "seed" && makes_another_run(key); }

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
    const auto a = number_of(value), b = number_of(wanted);
    return a && b ? *a == *b : value == wanted;
}

using Segment = std::map<std::string, std::string>;

// The options of each segment of a split, by its number, with those that stand beside the task's name.
std::map<std::size_t, Segment> segments_of(const CollectedRun& run, const std::string& split) {
    const std::string own = "task." + split + ".";
    Segment shared;
    std::map<std::size_t, Segment> segments;
    for (const auto& [key, value] : run.record.config) {
        if (!key.starts_with("task.")) continue;
        if (key.find('.', 5) == std::string::npos) shared[key.substr(5)] = in_words(value);
        if (!key.starts_with(own)) continue;
        std::size_t number = 0;
        const char* end = key.data() + key.size();
        const auto parsed = std::from_chars(key.data() + own.size(), end, number);
        if (parsed.ec == std::errc() && parsed.ptr != end && *parsed.ptr == '.') segments[number][parsed.ptr + 1] = in_words(value);
    }
    for (const char* no_option : {"name", "train", "valid", "test"}) shared.erase(no_option);
    for (auto& [number, segment] : segments) segment.insert(shared.begin(), shared.end());
    return segments;
}

// Times differ between two trainings of one run; what it learned does not.
bool same_results(const RunRecord& a, const RunRecord& b) {
    for (const char* name : {"valid_accuracy", "test_accuracy", "final_loss"}) {
        const auto one = a.summary.find(name), two = b.summary.find(name);
        if (one == a.summary.end() || two == b.summary.end()) continue;
        if (one->second != two->second && !(std::isnan(one->second) && std::isnan(two->second))) return false;
    }
    return true;
}

// What a person most likely meant by `name`: keys whose last part it is ("lr" for train.lr), else the one that is spelt like it.
std::string meant(const std::string& name, const std::vector<std::string>& names) {
    std::vector<std::string> found;
    for (const std::string& known : names)
        if (known.ends_with("." + name) || known.ends_with("_" + name)) found.push_back("'" + known + "'");
    if (const std::optional<std::string> near = closest(name, names); near && found.empty()) found.push_back("'" + *near + "'");
    return join(found, " or ");
}

}  // namespace

std::optional<double> number_of(const std::string& text) {
    double value = 0;
    const char* end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, value);
    return parsed.ec == std::errc() && parsed.ptr == end && !text.empty() ? std::optional(value) : std::nullopt;
}

std::optional<Attribute> value_under(const CollectedRun& run, const std::string& key) {
    if (key == "sweep" && !run.sweep.empty()) return run.sweep;
    if (const Attribute* value = find(run.record.config, key)) return *value;
    for (const auto& [name, text] : run.run.varied) {
        if (name == key) return native(Value::scalar(text));
    }
    if (const Attribute* name = find(run.record.config, key + ".name")) return *name;
    if (const auto measured = run.record.summary.find(key); measured != run.record.summary.end()) return typed(measured->second);
    return std::nullopt;
}

std::string valid_source(const std::string& task_valid) {
    if (task_valid == "[]") return "the test segments";
    return task_valid == "train" ? "the training segments" : "segments of their own";
}

std::string value_of(const CollectedRun& run, const std::string& key) {
    const std::optional<Attribute> value = value_under(run, key);
    return value ? in_words(*value) : "";
}

std::vector<std::string> config_keys(const std::vector<CollectedRun>& runs) {
    std::set<std::string> keys;
    for (const CollectedRun& run : runs) {
        for (const auto& [key, value] : run.record.config) keys.insert(key);
        for (const auto& [key, value] : run.run.varied) keys.insert(key);
        if (!run.sweep.empty()) keys.insert("sweep");
        if (keys.count("task.name") > 0) keys.insert("task");
    }
    return {keys.begin(), keys.end()};
}

std::vector<std::string> summary_names(const std::vector<CollectedRun>& runs) {
    std::set<std::string> names;
    for (const CollectedRun& run : runs)
        for (const auto& [name, value] : run.record.summary) names.insert(name);
    return {names.begin(), names.end()};
}

std::vector<std::string> policy_names(const std::vector<CollectedRun>& runs) {
    std::vector<std::string> names;
    for (const CollectedRun& run : runs)
        for (const std::string& name : run.record.policy_names)
            if (!contains(names, name)) names.push_back(name);
    return names;
}

void check_known(const std::string& what, const std::vector<std::string>& wanted, const std::vector<std::string>& names) {
    for (const std::string& name : wanted) {
        if (contains(names, name)) continue;
        const std::string near = meant(name, names);
        if (!near.empty()) fail(ExitCode::usage, "no run has the {} '{}'; did you mean {}?", what, name, near);
        fail(ExitCode::usage, "no run has the {} '{}'. There are: {}", what, name, names.empty() ? "none" : join(names, ", "));
    }
}

bool makes_another_run(const std::string& key) {
    const AnySchema* schema = &run_schema();
    for (std::size_t begin = 0; schema != nullptr;) {
        const std::size_t dot = std::min(key.find('.', begin), key.size());
        const Option* option = schema->find(std::string_view(key).substr(begin, dot - begin));
        if (option == nullptr) return true;  // of a task or a mixer, or of another version
        if (!option->identity) return false;
        schema = option->nested;
        begin = std::min(dot + 1, key.size());
    }
    return true;
}

bool follows(const std::vector<CollectedRun>& runs, const std::string& key, const std::vector<std::string>& from) {
    std::map<Group, std::string> seen;
    Group group(from.size());
    return std::all_of(runs.begin(), runs.end(), [&](const CollectedRun& run) {
        const std::optional<Attribute> value = value_under(run, key);
        if (!value && run.record.config.empty()) return true;
        for (std::size_t i = 0; i < from.size(); ++i) group[i] = value_of(run, from[i]);
        const std::string text = value ? in_words(*value) : "";
        return seen.emplace(group, text).first->second == text;
    });
}

std::vector<VaryingKey> varying_keys(const std::vector<CollectedRun>& runs) {
    std::vector<std::string> order;
    std::map<std::string, std::pair<std::set<Attribute>, std::size_t>> seen;  // values and holders
    std::size_t known = 0;
    for (const CollectedRun& run : runs) {
        known += run.record.config.empty() ? 0 : 1;
        for (const auto& [key, value] : run.record.config) {
            auto& [values, holders] = seen[key];
            if (holders++ == 0) order.push_back(key);
            values.insert(value);
        }
    }
    std::vector<VaryingKey> varying;
    for (const bool several : {true, false})
        for (const std::string& key : order)
            if (const auto& [values, holders] = seen[key]; (values.size() > 1) == several && (several || holders < known))
                varying.push_back({key, several});
    return varying;
}

std::vector<std::string> differing_keys(const std::vector<CollectedRun>& runs, const std::vector<std::string>& swept) {
    std::vector<std::string> chosen;
    for (const std::string& key : swept)
        if (key != "seed" && !follows(runs, key, {})) chosen.push_back(key);
    const std::vector<std::string> of_sweep = chosen;
    for (const auto& [key, several] : varying_keys(runs))
        if (worth_showing(key) && !contains(swept, key) && !follows(runs, key, several ? of_sweep : chosen)) chosen.push_back(key);
    return chosen;
}

std::vector<std::string> averaged_keys(const std::vector<CollectedRun>& runs, const std::vector<std::string>& by,
                                       const std::vector<std::string>& swept) {
    std::vector<std::string> over, named = by;
    // The task and what was swept are named even where other keys tell them.
    const auto look_at = [&](const std::string& key, const std::vector<std::string>& from) {
        if (contains(named, key) || follows(runs, key, from)) return;
        over.push_back(key);
        named.push_back(key);
    };
    look_at("task", by);
    for (const std::string& key : swept)
        if (key != "seed") look_at(key, by);
    for (const std::string& key : differing_keys(runs, swept)) look_at(key, named);
    return over;
}

std::vector<CollectedRun> filter(const std::vector<CollectedRun>& runs, const std::string& where) {
    const std::size_t equals = where.find('=');
    if (equals == std::string::npos || equals == 0)
        fail(ExitCode::usage, "'{}' chooses nothing; write key=value, such as model.mixer=delta", where);
    const std::string key = where.substr(0, equals);
    if (!contains(summary_names(runs), key)) check_known("config key", {key}, config_keys(runs));
    const std::vector<std::string> wanted = split_values(where.substr(equals + 1));
    std::vector<CollectedRun> kept;
    std::vector<std::string> values;
    std::set<std::string> seen;
    for (const CollectedRun& run : runs) {
        const std::string value = value_of(run, key);
        if (seen.insert(value).second) values.push_back(value);
        const auto matches = [&](const std::string& item) { return same_value(value, item); };
        if (std::any_of(wanted.begin(), wanted.end(), matches)) kept.push_back(run);
    }
    if (kept.empty()) fail(ExitCode::usage, "no run has {}; its values are: {}", where, join(values, ", "));
    return kept;
}

std::vector<std::string> test_segments(const CollectedRun& run) {
    const auto segments = segments_of(run, "test");
    std::vector<std::string> labels;
    for (const auto& [number, segment] : segments) {
        std::vector<std::string> words;
        for (const auto& [option, value] : segment) {
            const auto differs = [&, &name = option, &here = value](const auto& other) {
                const auto found = other.second.find(name);
                return found == other.second.end() || found->second != here;
            };
            if (option != "examples" && std::any_of(segments.begin(), segments.end(), differs))
                words.push_back(option + "=" + value);
        }
        labels.push_back(words.empty() ? fmt::format("segment {}", number) : join(words, " "));
    }
    return labels;
}

std::map<std::string, std::string> valid_questions(const CollectedRun& run) {
    std::map<std::string, std::string> questions;
    if (run.record.config.empty()) return questions;
    auto segments = segments_of(run, "valid");
    const bool as_train =
        value_of(run, "task.valid") == "train";  // of their options, with a number of examples that is always the same
    if (segments.empty()) segments = segments_of(run, as_train ? "train" : "test");
    if (as_train)
        for (auto& [number, segment] : segments) segment.erase("examples");
    for (const auto& [number, segment] : segments)
        for (const auto& [option, value] : segment) questions[fmt::format("task.{} of segment {}", option, number)] = value;
    for (const char* key : {"task.name", "data.seed", "eval.mean"}) questions[key] = value_of(run, key);
    return questions;
}

Copies find_copies(const std::vector<CollectedRun>& runs) {
    Copies copies;
    std::map<std::string, std::vector<const CollectedRun*>> by_id;
    for (const CollectedRun& run : runs)
        if (!run.run.run_id.empty()) by_id[run.run.run_id].push_back(&run);  // without one: a file that cannot be read
    for (const auto& [id, same] : by_id) {
        if (same.size() < 2) continue;
        if (copies.runs++ == 0) copies = {1, 0, id, same[0]->run.folder, same[1]->run.folder};
        copies.different += std::all_of(same.begin(), same.end(),
                                        [&first = *same[0]](const auto* run) { return same_results(first.record, run->record); })
                                ? 0
                                : 1;
    }
    return copies;
}

std::vector<CollectedRun> each_once(std::vector<CollectedRun> runs, bool by_sweep) {
    std::vector<CollectedRun> kept;
    std::map<std::pair<std::string, std::string>, std::size_t> places;
    for (CollectedRun& run : runs) {
        const std::string& id = run.run.run_id;
        const auto [place, is_new] = places.try_emplace({id, by_sweep ? run.sweep : ""}, kept.size());
        if (is_new || id.empty()) {
            kept.push_back(std::move(run));
            continue;
        }
        CollectedRun& before = kept[place->second];
        std::string sweep = before.sweep;
        if (("+" + sweep + "+").find("+" + run.sweep + "+") == std::string::npos) sweep += "+" + run.sweep;
        if (before.record.summary.empty() && !run.record.summary.empty()) before = std::move(run);
        before.sweep = sweep;
    }
    return kept;
}

}  // namespace palimpsest
