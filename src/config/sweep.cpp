#include "config/sweep.h"

#include "config/schema_fields.h"
#include "core/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>

namespace palimpsest {
namespace {

std::optional<double> number(const Value& value) {
    Diagnostics ignored;
    double out = 0;
    fields::read(out, value, "", {}, ignored);
    return ignored.empty() ? std::optional(out) : std::nullopt;
}

// Returns whether two values are the same; 1e-2 and 0.01 are.
bool same(const Value& a, const Value& b) {
    if (a.kind != b.kind || a.items.size() != b.items.size() || a.entries.size() != b.entries.size()) return false;
    if (a.kind == Value::Kind::scalar) {
        const auto x = number(a), y = number(b);
        return x && y ? *x == *y : a.text == b.text;
    }
    for (std::size_t i = 0; i < a.items.size(); ++i)
        if (!same(a.items[i], b.items[i])) return false;
    return std::all_of(a.entries.begin(), a.entries.end(), [&](const Value::Entry& entry) {
        const Value* other = b.find(entry.key);
        return other && same(entry.value, *other);
    });
}

// Returns whether the value is the wanted one. A map with a name, such as a whole task, is matched by that name.
bool matches(const Value* value, const Value& wanted) {
    if (!value) return false;
    if (const Value* name = value->find("name"); name && wanted.kind != Value::Kind::map) return matches(name, wanted);
    return same(*value, wanted) ||
           std::any_of(wanted.items.begin(), wanted.items.end(), [&](const Value& item) { return same(*value, item); });
}

void collect_keys(const Value& value, const std::string& path, std::set<std::string>& keys) {
    for (const Value::Entry& entry : value.entries) {
        const std::string below = path.empty() ? entry.key : path + "." + entry.key;
        keys.insert(below);
        collect_keys(entry.value, below, keys);
    }
    for (std::size_t i = 0; i < value.items.size(); ++i)
        if (value.items[i].kind == Value::Kind::map) collect_keys(value.items[i], fmt::format("{}.{}", path, i), keys);
}

std::vector<std::size_t> indices(const Sweep& sweep, std::size_t point) {
    std::vector<std::size_t> index(sweep.axes.size());
    for (std::size_t a = index.size(); a-- > 0; point /= sweep.axes[a].size) index[a] = point % sweep.axes[a].size;
    return index;
}

// Returns the option that a dotted path names, or nullptr where there is none or where the task or mixer is not known.
const Option* find_option(const Value& root, const Catalog& catalog, const std::string& path) {
    const std::string section = path.substr(0, path.find('.')), last = path.substr(path.rfind('.') + 1);
    if (section == "task") {
        const Value* name = find_path(root, "task.name");
        const AnySchema* schema = name ? catalog.task_schema(name->text) : nullptr;
        return schema ? schema->find(last) : nullptr;
    }
    if (section == "mixers") {
        const std::string rest = path.substr(std::min(path.size(), section.size() + 1));
        const AnySchema* schema = catalog.mixer_schema(rest.substr(0, rest.find('.')));
        return schema ? schema->find(last) : nullptr;
    }
    const Option* option = run_schema().find(section);
    return option && option->nested ? option->nested->find(last) : option;
}

// Takes out integers that are drawn as numbers and reports each key once. Left in, each sample would be an error.
Sweep without_fractions(const Sweep& sweep, const Value& root, const Catalog& catalog, Diagnostics& errors) {
    Sweep whole = sweep;
    for (Axis& axis : whole.axes)
        std::erase_if(axis.keys, [&](const SweptKey& key) {
            const bool fractions = key.distribution == "uniform" || key.distribution == "log_uniform";
            const Option* option = fractions ? find_option(root, catalog, key.path) : nullptr;
            if (!option || option->type != "integer") return false;
            errors.error(key.source,
                         fmt::format("'{}' is an integer, and {} draws numbers with a fraction; write {{integer: [low, high]}}",
                                     key.path, key.distribution));
            return true;
        });
    return whole;
}

std::string describe(const PlannedRun& run) {
    std::vector<std::string> words;
    for (const auto& [key, value] : run.varied) words.push_back(key + "=" + value);
    return join(words, " ");
}

class Expansion {
public:
    Expansion(Sweep sweep, const Value& root, std::vector<Setting> settings, const Catalog& catalog, Experiment& experiment,
              Diagnostics& errors)
        : sweep_(std::move(sweep)),
          root_(root),
          settings_(std::move(settings)),
          catalog_(catalog),
          experiment_(experiment),
          errors_(errors),
          excluded_by_(sweep_.exclude.size()) {
        for (const Axis& axis : sweep_.axes)
            for (const SweptKey& key : axis.keys) settings_.push_back({key.path, key.source, true});
    }

    // Expands the sweep in file order, the last axis fastest, seeds innermost. Of a sweep that is too large one point is read, so
    // that other errors are told at once. Errors that repeat from point to point are told once and end the expansion.
    std::vector<std::size_t> expand() {
        const std::size_t all = points_of(sweep_);
        const bool too_large = all > most_runs || static_cast<std::size_t>(sweep_.seeds) > most_runs / all;
        const std::int64_t seeds = too_large ? 1 : sweep_.seeds;
        std::size_t point = 0;
        for (; point < (too_large ? 1 : all) && errors_.size() < most_errors; ++point) add_point(point, seeds);
        if (point == all) check_exclusions();
        if (errors_.empty()) check_settings();
        tell(point * static_cast<std::size_t>(seeds));
        return std::move(point_of_run_);
    }

private:
    static constexpr std::size_t most_errors = 10'000;

    void add_point(std::size_t point, std::int64_t seeds) {
        const std::vector<std::size_t> index = indices(sweep_, point);
        const Value tree = tree_at(sweep_, root_, point, errors_);
        std::size_t setting = settings_.size();
        for (const Axis& axis : sweep_.axes) setting -= axis.keys.size();
        for (std::size_t a = 0; a < index.size(); ++a)
            for (const SweptKey& key : sweep_.axes[a].keys) settings_[setting++].source = key.values[index[a]].source;
        Diagnostics own;
        RunSpec run = build_run(tree, settings_, catalog_, own);
        run.written = std::make_shared<const Value>(tree);
        if (!sweep_.exclude.empty()) collect_keys(run.resolved, "", keys_);
        if (run.seed > std::numeric_limits<std::int64_t>::max() - (sweep_.seeds - 1)) {
            errors_.error(sweep_.seeds_source,
                          fmt::format("'sweep.seeds' counts up from seed {}, past the largest integer; lower 'seed'", run.seed));
            return;
        }
        bool all_excluded = true;
        for (std::int64_t i = 0; i < seeds; ++i) {
            Value resolved = run.resolved;
            resolved.set("seed", fields::write(run.seed + i));
            if (is_excluded(resolved, own.empty() ? nullptr : &tree)) {
                ++excluded_;
                continue;
            }
            all_excluded = false;
            if (!own.empty() || !errors_.empty()) continue;
            for (const Setting& s : settings_)
                if (run.unused.count(s.path) == 0) effective_.insert(s.path);
            add_run(run, run.seed + i, std::move(resolved), index);
            point_of_run_.resize(experiment_.runs.size(), point);
        }
        if (!all_excluded) errors_.add(own);
    }

    // Returns whether an exclusion matches the point. In a point with errors (`written` given) a default may stand for a value that
    // could not be read, so there the written value has to match too.
    bool is_excluded(const Value& resolved, const Value* written) {
        for (std::size_t e = 0; e < sweep_.exclude.size(); ++e) {
            const std::vector<Exclusion::Entry>& entries = sweep_.exclude[e].entries;
            const bool match = std::all_of(entries.begin(), entries.end(), [&](const Exclusion::Entry& entry) {
                const Value* given = written ? find_path(*written, entry.path) : nullptr;
                return matches(find_path(resolved, entry.path), entry.wanted) && (!given || matches(given, entry.wanted));
            });
            if (match) {
                ++excluded_by_[e];
                return true;
            }
        }
        return false;
    }

    void add_run(const RunSpec& run, std::int64_t seed, Value resolved, const std::vector<std::size_t>& index) {
        PlannedRun planned;
        planned.spec = run;
        planned.spec.seed = seed;
        planned.spec.resolved = std::move(resolved);
        planned.spec.id = identify(planned.spec, catalog_);
        for (std::size_t a = 0; a < index.size(); ++a)
            for (const SweptKey& key : sweep_.axes[a].keys)
                planned.varied.emplace_back(key.path, value_text(key, index[a], planned.spec.resolved));
        if (sweep_.seeds > 1) planned.varied.emplace_back("seed", std::to_string(seed));
        const auto [old, is_new] = position_.emplace(planned.spec.id, experiment_.runs.size());
        if (!is_new) {
            ++repeats_;
            if (repeated_.empty()) repeated_ = fmt::format("{} is {}", describe(planned), points_[old->second]);
            return;
        }
        points_.push_back(describe(planned));
        // A record must not give a value to a key that the run does not use.
        std::erase_if(planned.varied, [&](const auto& key) { return run.unused.count(key.first) > 0; });
        for (const std::string& caution : run.cautions)
            if (std::find(experiment_.notes.begin(), experiment_.notes.end(), caution) == experiment_.notes.end())
                experiment_.notes.push_back(caution);
        experiment_.runs.push_back(std::move(planned));
    }

    // Returns the value as the records hold it ("0.001" for 1e-3).
    static std::string value_text(const SweptKey& key, std::size_t index, const Value& resolved) {
        if (!key.names.empty()) return key.names[index];
        const Value* value = find_path(resolved, key.path);
        return emit_flow(value ? *value : key.values[index]);
    }

    void check_exclusions() {
        const bool task_known = keys_.count("task.name") > 0;
        for (const std::string& name : catalog_.mixers)  // a mixer that no run uses has options too
            if (const AnySchema* schema = catalog_.mixer_schema(name))
                for (const Option& option : schema->options()) keys_.insert("mixers." + name + "." + option.name);
        const std::vector<std::string> known(keys_.begin(), keys_.end());
        for (const Exclusion& exclusion : sweep_.exclude)
            for (const Exclusion::Entry& entry : exclusion.entries)
                if (keys_.count(entry.path) == 0 && (task_known || !is_below(entry.path, "task")))
                    errors_.error(entry.source, fmt::format("'sweep.exclude': no run has the key '{}'{}", entry.path,
                                                            did_you_mean(entry.path, known)));
        if (errors_.empty() && experiment_.runs.empty())
            errors_.error(sweep_.exclude.front().source, "'sweep.exclude' leaves no run");
    }

    // Reports keys that were set for this call, or are swept, and count in no run. A single point cannot know this.
    void check_settings() {
        if (experiment_.runs.empty()) return;
        for (const Setting& s : settings_)
            if (effective_.count(s.path) == 0)
                errors_.error(s.source, fmt::format("'{}' has no effect: no run {} looks at it; leave it out", s.path,
                                                    experiment_.is_sweep ? "of this sweep" : "with this model"));
    }

    void tell(std::size_t planned) {
        std::vector<std::string>& notes = experiment_.notes;
        if (!repeated_.empty())
            notes.push_back(fmt::format("{} of {} runs repeat another and were merged; e.g. {}", repeats_, planned, repeated_));
        if (excluded_ > 0) notes.push_back(fmt::format("{} of {} runs left out by sweep.exclude", excluded_, planned));
        for (std::size_t e = 0; e < excluded_by_.size(); ++e)
            if (excluded_by_[e] == 0)
                notes.push_back(fmt::format("{}: this entry of sweep.exclude matches no run", sweep_.exclude[e].source.where()));
        const std::size_t runs = experiment_.runs.size(), cap = static_cast<std::size_t>(sweep_.cap);
        if (cap == 0 || runs <= cap) return;
        experiment_.runs.resize(cap);
        notes.push_back(fmt::format("sweep.cap: the first {} of {} runs; {} left out", cap, runs, runs - cap));
    }

    const Sweep sweep_;
    const Value& root_;
    std::vector<Setting> settings_;  // the sweep's settings come last, in order of the axes
    const Catalog& catalog_;
    Experiment& experiment_;
    Diagnostics& errors_;
    std::set<std::string> effective_;       // the settings that count in some run
    std::set<std::string> keys_;            // of the resolved configs of all points, where something is excluded
    std::vector<std::size_t> excluded_by_;  // number of runs, by exclusion
    std::size_t excluded_ = 0, repeats_ = 0;
    std::map<std::string, std::size_t> position_;  // of a run, by its id
    std::vector<std::size_t> point_of_run_;
    std::vector<std::string> points_;  // the runs' points in words, with keys that the runs do not use
    std::string repeated_;
};

}  // namespace

std::size_t points_of(const Sweep& sweep) {
    std::size_t product = 1;
    for (const Axis& axis : sweep.axes) product = std::min(product * axis.size, most_runs + 1);
    return product;
}

Value tree_at(const Sweep& sweep, const Value& root, std::size_t point, Diagnostics& errors) {
    Value tree = root;
    const std::vector<std::size_t> index = indices(sweep, point);
    for (std::size_t a = 0; a < index.size(); ++a)
        for (const SweptKey& key : sweep.axes[a].keys) set_path(tree, key.path, key.values[index[a]], key.source, errors);
    return tree;
}

std::vector<std::size_t> expand_sweep(const Sweep& sweep, const Value& root, const std::vector<Setting>& settings,
                                      const Catalog& catalog, Experiment& experiment, Diagnostics& errors) {
    experiment.lanes = sweep.lanes;
    return Expansion(without_fractions(sweep, root, catalog, errors), root, settings, catalog, experiment, errors).expand();
}

}  // namespace palimpsest
