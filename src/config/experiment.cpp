// From a config to its runs. The sweep block is expanded and frozen here, before anything starts.
#include "config/schema_fields.h"
#include "config/sweep.h"
#include "core/error.h"
#include "core/file.h"
#include "core/text.h"

#include <fmt/format.h>

#include <filesystem>

namespace palimpsest {
namespace {

// Returns the value in `tree` from which the value at `path` of the resolved config came: at that path, or as a default of all
// segments or of all layers of a mixer, or in each of these.
const Value* find_origin(const RunSpec& run, const Value& tree, const std::string& path) {
    if (const Value* value = find_path(tree, path)) return value;
    std::vector<std::string> parts = {""};
    for (const char c : path)
        if (c == '.') parts.emplace_back();
        else parts.back() += c;
    const std::string& key = parts.back();
    const auto in_list = [&](const std::string& list, const std::string& mixer) -> const Value* {
        const Value* items = find_path(tree, list);
        for (std::size_t i = 0; items && i < items->items.size(); ++i) {
            const Value* name = items->items[i].find("mixer");
            if (const Value* value = items->items[i].find(key); value && (mixer.empty() || (name && name->text == mixer)))
                return value;
        }
        return nullptr;
    };
    if (parts.size() == 4 && parts[0] == "task") return find_path(tree, "task." + key);
    if (parts.size() == 4 && parts[1] == "layers" && key == "mixer") return find_path(tree, "model.layers." + parts[2]);
    if (parts.size() == 4 && parts[1] == "layers")
        if (const std::size_t layer = std::stoul(parts[2]); layer < run.model.layers.size())
            return find_path(tree, "mixers." + run.model.layers[layer].mixer + "." + key);
    if (parts.size() == 3 && parts[0] == "mixers") return in_list("model.layers", parts[1]);
    if (parts.size() == 2 && parts[0] == "task")
        for (const char* split : {"task.train", "task.valid", "task.test"})
            if (const Value* value = in_list(split, "")) return value;
    return nullptr;
}

// Returns where `path` was written, or else the next section around it that was written, or "" where none was.
std::string where_written(const Value& tree, const std::string& path) {
    const std::size_t dot = path.rfind('.');
    const std::string parent = dot == std::string::npos ? "" : path.substr(0, dot), key = path.substr(dot + 1);  // npos + 1 is 0
    const Value* section = parent.empty() ? &tree : find_path(tree, parent);
    const Value* value = section ? find_path(*section, key) : nullptr;
    if (value && value->kind == Value::Kind::map)  // its key stands above the map
        for (const Value::Entry& entry : section->entries)
            if (entry.key == key && entry.source.text) return entry.source.where();
    if (value && value->source.text) return value->source.where();
    if (!parent.empty()) return where_written(tree, parent);
    return tree.source.text ? tree.source.where() : "";
}

// Returns the resolved config with the origin of its value beside each line.
std::string explain(const RunSpec& run, const Value& tree) {
    return emit_yaml(run.resolved, [&](const std::string& path) -> std::string {
        if (path == "model.depth" && !run.model.layers.empty()) return "as many as model.layers";
        const Value* value = find_origin(run, tree, path);
        if (!value || !value->source.text) return "default";
        const Source& source = value->source;
        return source.text->name == "<command line>" ? source.where() : fmt::format("{}:{}", source.text->name, source.line);
    });
}

// Returns a run of the plan, by its number there, from 1, or by at least six digits of its id, so that the two cannot be confused.
std::size_t choose(const std::vector<PlannedRun>& runs, const std::string& only) {
    const bool digits = !only.empty() && only.find_first_not_of("0123456789") == std::string::npos;
    if (digits && only.size() < 6) {
        const std::size_t number = std::stoul(only);
        if (number >= 1 && number <= runs.size()) return number - 1;
        fail(ExitCode::usage, "--only {}: the plan has the runs 1 to {}; `--dry-run` lists them", only, runs.size());
    }
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < runs.size(); ++i)
        if (only.size() >= 6 && runs[i].spec.id.starts_with(only)) found.push_back(i);
    if (found.size() == 1) return found.front();
    if (found.size() > 1)
        fail(ExitCode::usage, "--only {}: {} runs of the plan have ids that begin so; write more digits", only, found.size());
    fail(ExitCode::usage,
         "--only {}: no run of the plan; write its number, or at least six digits of its id (`--dry-run` lists them)", only);
}

}  // namespace

std::string at_its_place(const RunSpec& run, const std::string& key, const std::string& message) {
    const std::string first = message.substr(0, message.find(": "));
    const std::string where = run.written ? where_written(*run.written, find_path(run.resolved, first) ? first : key) : "";
    return where.empty() ? message : fmt::format("{}: error: {}", where, message);
}

Experiment parse_experiment(const std::string& name, const std::string& text, const std::vector<std::string>& overrides,
                            const Catalog& catalog, const std::vector<std::string>& config_dirs, const std::string& only) {
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
    const std::vector<std::size_t> points = expand_sweep(sweep, root, settings, catalog, experiment, errors);
    errors.throw_if_any();
    experiment.name = experiment.runs.front().spec.name;
    experiment.chosen = only.empty() ? 0 : choose(experiment.runs, only);
    experiment.explain = explain(experiment.runs[experiment.chosen].spec, tree_at(sweep, root, points[experiment.chosen], errors));
    return experiment;
}

Experiment load_experiment(const std::string& path, const std::vector<std::string>& overrides, const Catalog& catalog,
                           const std::vector<std::string>& config_dirs, const std::string& only) {
    std::vector<std::string> tried = {path};
    for (const std::string& folder : config_dirs)
        tried.push_back((std::filesystem::path(folder) / path).lexically_normal().string());
    for (const std::string& candidate : tried)
        if (can_be_read(candidate))
            return parse_experiment(candidate, read_config(candidate), overrides, catalog, config_dirs, only);
    fail(ExitCode::usage, "no config '{}'; looked for {}", path, join(tried, ", "));
}

}  // namespace palimpsest
