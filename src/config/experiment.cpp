// From a config to its runs: the sweep block, expanded and frozen here, before anything starts.
#include "config/build.h"
#include "core/error.h"
#include "core/file.h"
#include "core/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace palimpsest {
namespace {

constexpr std::size_t most_runs = 10'000;

struct Axis {
    std::string path;
    Source key;
    std::vector<Value> values;
    std::vector<std::string> names;  // of values that are maps with names of their own, such as whole tasks
};

struct Sweep {
    std::vector<Axis> axes;
    std::int64_t seeds = 1;
    Source seeds_place;
    std::size_t points() const {
        std::size_t product = 1;
        for (const Axis& axis : axes) product = std::min(product * axis.values.size(), most_runs + 1);
        return product;
    }
};

std::vector<std::string> names_of(const std::vector<Value>& values) {
    std::vector<std::string> names;
    for (const Value& value : values) {
        const Value* name = value.find("name");
        if (!name || name->kind != Value::Kind::scalar || std::find(names.begin(), names.end(), name->text) != names.end())
            return {};
        names.push_back(name->text);
    }
    return names;
}

void read_grid(Sweep& sweep, const Value& grid, Diagnostics& errors) {
    if (grid.kind != Value::Kind::map) {
        errors.error(grid.source, "'sweep.grid' expects a map from keys to lists of values, such as {train.lr: [1e-3, 3e-3]}");
        return;
    }
    for (const Value::Entry& entry : grid.entries) {
        const std::string first = entry.key.substr(0, entry.key.find('.'));
        if (first == "sweep" || first == "base" || first == "name") {
            errors.error(entry.source, fmt::format("'{}' cannot be swept", first));
        } else if (entry.value.kind != Value::Kind::list) {
            errors.error(entry.value.source, fmt::format("'sweep.grid.{}' expects a list of values", entry.key));
        } else if (entry.value.items.empty()) {
            errors.error(entry.value.source, fmt::format("'sweep.grid.{}' has no values", entry.key));
        } else {
            for (const Axis& axis : sweep.axes)
                if (is_below(axis.path, entry.key))
                    errors.error(entry.source, fmt::format("'{}' would overwrite '{}', which is swept too; write it first",
                                                           entry.key, axis.path));
            sweep.axes.push_back({entry.key, entry.source, entry.value.items, names_of(entry.value.items)});
        }
    }
}

Sweep read_sweep(const Value& block, const std::vector<Setting>& settings, Diagnostics& errors) {
    Sweep sweep;
    if (block.kind != Value::Kind::map) {
        errors.error(block.source, "'sweep' expects a map; known keys: grid, seeds");
        return sweep;
    }
    for (const Value::Entry& entry : block.entries) {
        if (entry.key == "grid") {
            read_grid(sweep, entry.value, errors);
        } else if (entry.key == "seeds") {
            fields::read(sweep.seeds, entry.value, "sweep.seeds", at_least(1), errors);
            sweep.seeds_place = entry.value.source;
        } else {
            const std::string hint = did_you_mean(entry.key, {"grid", "seeds"});
            errors.error(entry.source, fmt::format("unknown key '{}' in 'sweep'{}", entry.key,
                                                   hint.empty() ? "; known keys: grid, seeds" : hint));
        }
    }
    for (const Axis& axis : sweep.axes) {
        if (axis.path == "seed" && sweep.seeds_place.text)
            errors.error(sweep.seeds_place, "give either 'sweep.seeds' or 'seed' in the grid");
        for (const Setting& setting : settings)
            if (is_below(setting.path, axis.path))
                errors.error(setting.source, fmt::format("'{}' has no effect: the sweep sets '{}'; set sweep.grid.{}=[…]",
                                                         setting.path, axis.path, axis.path));
    }
    if (sweep.points() > most_runs || static_cast<std::size_t>(sweep.seeds) > most_runs / sweep.points())
        errors.error(block.source, fmt::format("more than {} runs", most_runs));
    return sweep;
}

// As the records hold it ("0.001" for 1e-3).
std::string value_text(const Axis& axis, std::size_t index, const Value& resolved) {
    if (!axis.names.empty()) return axis.names[index];
    const Value* value = find_path(resolved, axis.path);
    return emit_flow(value ? *value : axis.values[index]);
}

std::string describe(const PlannedRun& run) {
    std::vector<std::string> words;
    for (const auto& [key, value] : run.varied) words.push_back(key + "=" + value);
    return join(words, " ");
}

class Expansion {
public:
    Expansion(const Value& root, const Sweep& sweep, std::vector<Setting> settings, const Catalog& catalog, Diagnostics& errors)
        : root_(root), sweep_(sweep), settings_(std::move(settings)), catalog_(catalog), errors_(errors) {
        for (const Axis& axis : sweep_.axes) settings_.push_back({axis.path, axis.key, true});
    }

    // File order, the last key fastest, seeds innermost. `first` receives the tree of the first run.
    void expand(Experiment& experiment, Value& first) {
        const std::size_t points = sweep_.points();
        for (std::size_t point = 0; point < points; ++point) {
            Value tree = root_;
            std::vector<std::size_t> index(sweep_.axes.size());
            std::size_t rest = point;
            for (std::size_t a = index.size(); a-- > 0; rest /= sweep_.axes[a].values.size())
                index[a] = rest % sweep_.axes[a].values.size();
            std::vector<Setting> settings = settings_;
            for (std::size_t a = 0; a < index.size(); ++a) {
                const Value& value = sweep_.axes[a].values[index[a]];
                settings[settings.size() - index.size() + a].source = value.source;
                set_path(tree, sweep_.axes[a].path, value, sweep_.axes[a].key, errors_);
            }
            const RunSpec run = build_run(tree, settings, catalog_, errors_);
            if (point == 0) first = std::move(tree);
            if (errors_.empty()) add_seeds(experiment, run, index);
        }
        if (!repeated_.empty())
            experiment.notes.push_back(fmt::format("{} of {} points repeat another run and were merged; e.g. {}", repeats_,
                                                   points * static_cast<std::size_t>(sweep_.seeds), repeated_));
    }

private:
    void add_seeds(Experiment& experiment, const RunSpec& run, const std::vector<std::size_t>& index) {
        for (std::int64_t i = 0; i < sweep_.seeds; ++i) {
            PlannedRun planned;
            planned.spec = run;
            planned.spec.seed = run.seed + i;
            planned.spec.resolved.set("seed", fields::write(planned.spec.seed));
            planned.spec.id = identify(planned.spec, catalog_);
            for (std::size_t a = 0; a < index.size(); ++a)
                planned.varied.emplace_back(sweep_.axes[a].path, value_text(sweep_.axes[a], index[a], planned.spec.resolved));
            if (sweep_.seeds > 1) planned.varied.emplace_back("seed", std::to_string(planned.spec.seed));
            const auto [old, is_new] = position_.emplace(planned.spec.id, experiment.runs.size());
            if (is_new) {
                experiment.runs.push_back(std::move(planned));
                continue;
            }
            ++repeats_;
            if (repeated_.empty()) repeated_ = fmt::format("{} is {}", describe(planned), describe(experiment.runs[old->second]));
        }
    }

    const Value& root_;
    const Sweep& sweep_;
    std::vector<Setting> settings_;
    const Catalog& catalog_;
    Diagnostics& errors_;
    std::map<std::string, std::size_t> position_;  // by id
    std::size_t repeats_ = 0;
    std::string repeated_;
};

// Each line of the resolved config with the place that its value came from.
std::string explain(const RunSpec& run, const Value& tree) {
    return emit_yaml(run.resolved, [&](const std::string& path) -> std::string {
        if (path == "model.depth" && !run.model.layers.empty()) return "as many as model.layers";
        const Value* value = find_path(tree, path);
        if (!value || !value->source.text) return "default";
        const Source& source = value->source;
        return source.text->name == "<command line>" ? source.where() : fmt::format("{}:{}", source.text->name, source.line);
    });
}

}  // namespace

Experiment parse_experiment(const std::string& name, const std::string& text, const std::vector<std::string>& overrides,
                            const Catalog& catalog, const std::vector<std::string>& config_dirs) {
    Diagnostics errors;
    Value root = compose(name, text, config_dirs, errors);
    const std::vector<Setting> settings = apply_overrides(root, overrides, errors);
    if (!root.find("name")) root.set("name", fields::write(std::filesystem::path(name).stem().string()));

    Experiment experiment;
    experiment.source_yaml = text;
    experiment.overrides = overrides;
    Sweep sweep;
    if (const Value* block = root.find("sweep"); block && block->kind != Value::Kind::null) {
        experiment.is_sweep = true;
        sweep = read_sweep(*block, settings, errors);
        std::erase_if(root.entries, [](const Value::Entry& entry) { return entry.key == "sweep"; });
    }
    Value first;
    if (sweep.points() <= most_runs) Expansion(root, sweep, settings, catalog, errors).expand(experiment, first);
    errors.throw_if_any();
    experiment.name = experiment.runs.front().spec.name;
    experiment.explain = explain(experiment.runs.front().spec, first);
    return experiment;
}

Experiment load_experiment(const std::string& path, const std::vector<std::string>& overrides, const Catalog& catalog,
                           const std::vector<std::string>& config_dirs) {
    std::vector<std::string> tried = {path};
    for (const std::string& folder : config_dirs)
        tried.push_back((std::filesystem::path(folder) / path).lexically_normal().string());
    for (const std::string& candidate : tried)
        if (file_exists(candidate)) return parse_experiment(candidate, read_file(candidate), overrides, catalog, config_dirs);
    fail(ExitCode::usage, "no config '{}'; looked for {}", path, join(tried, ", "));
}

}  // namespace palimpsest
