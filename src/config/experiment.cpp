// From a config to its runs: the sweep block is expanded and frozen here, before anything starts.
#include "config/schema_fields.h"
#include "config/sweep.h"
#include "core/error.h"
#include "core/file.h"
#include "core/text.h"

#include <fmt/format.h>

#include <filesystem>

namespace palimpsest {
namespace {

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
    expand_sweep(sweep, root, settings, catalog, experiment, first, errors);
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
