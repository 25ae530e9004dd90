// The frozen plan of a sweep: how it is written, put in force, and read again.
#include "config/schema_fields.h"
#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "core/time.h"
#include "sweep/plan.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <set>
#include <sstream>
#include <unordered_map>

namespace palimpsest {
namespace {

constexpr const char* manifest_format = "palimpsest-manifest 2";
// Its runs stand alike; their configs are told as differences that this version does not read.
constexpr const char* older_format = "palimpsest-manifest 1";

std::string manifest_path(const std::string& folder) { return folder + "/manifest.yaml"; }

const Value& need(const Value& map, const char* key, Value::Kind kind, const std::string& path) {
    const Value* value = map.find(key);
    if (value == nullptr || value->kind != kind) fail(ExitCode::usage, "'{}' is no manifest of this tool: no '{}'", path, key);
    return *value;
}

const std::string& text_of(const Value& map, const char* key, const std::string& path) {
    return need(map, key, Value::Kind::scalar, path).text;
}

// Somebody may have edited it: a run must not be looked for, or written, outside of its sweep.
std::string folder_of_run(const Value& item, const std::string& path) {
    const std::string& name = text_of(item, "folder", path);
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos)
        fail(ExitCode::usage, "'{}' plans a run in '{}'; a run's folder lies in that of its sweep, such as '0123456789ab-delta'",
             path, name);
    return name;
}

// YAML text below the key at hand, as it stands: every line moved right.
std::string literal(const std::string& text, const std::string& indent) {
    std::string out = "|\n";
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) out += indent + line + "\n";
    return out;
}

// A carriage return would not survive the quotes of YAML.
std::string with_line_feeds(std::string text) {
    std::erase(text, '\r');
    return text;
}

std::vector<std::string> changes(const Manifest& before, const Manifest& after) {
    std::vector<std::string> notes;
    const auto note = [&](const Manifest& of, const Manifest& other, const char* what) {
        std::set<std::string> elsewhere;
        for (const SweepRun& run : other.runs) elsewhere.insert(run.run_id);
        std::vector<std::string> names;
        for (const SweepRun& run : of.runs)
            if (!elsewhere.contains(run.run_id))
                names.push_back(short_id(run.run_id) + (run.varied.empty() ? "" : " (" + varied_text(run.varied) + ")"));
        if (!names.empty())
            notes.push_back(fmt::format("the plan has changed since last time: {} {}: {}", plural(std::ssize(names), "run"), what,
                                        join_some(names, 5)));
    };
    note(after, before, "new");
    note(before, after, "no longer planned (folders stay)");
    return notes;
}

}  // namespace

Manifest plan_sweep(const Experiment& experiment, const std::string& results, const std::string& command) {
    Manifest manifest;
    manifest.name = experiment.name;
    manifest.sweep_id = sweep_id(experiment);
    manifest.created = now_utc();
    manifest.command = command;
    manifest.overrides = experiment.overrides;
    manifest.source_yaml = with_line_feeds(experiment.source_yaml);
    std::vector<std::string> folders = planned_folders(results, experiment);
    for (std::size_t i = 0; i < experiment.runs.size(); ++i) {
        const PlannedRun& run = experiment.runs[i];
        manifest.runs.push_back({run.spec.id, std::move(folders[i]), run.varied, emit_yaml(run.spec.resolved)});
    }
    return manifest;
}

std::string manifest_yaml(const Manifest& manifest) {
    Value head = Value::map(), overrides = Value::list(), source = Value::map();
    for (const std::string& word : manifest.overrides) overrides.items.push_back(fields::write(word));
    head.set("format", fields::write(std::string(manifest_format)));
    head.set("name", fields::write(manifest.name));
    head.set("sweep_id", Value::scalar(manifest.sweep_id, true));
    head.set("created", Value::scalar(manifest.created, true));
    head.set("command", fields::write(manifest.command));
    head.set("overrides", std::move(overrides));
    std::string yaml = emit_yaml(head) + "runs:\n";
    for (const SweepRun& run : manifest.runs) {
        Value varied = Value::map();
        for (const auto& [key, value] : run.varied) varied.set(key, Value::scalar(value, true));
        yaml += fmt::format("  - id: \"{}\"\n    folder: {}\n    varied: {}\n    config: {}", run.run_id,
                            emit_flow(Value::scalar(std::filesystem::path(run.folder).filename().string(), true)),
                            emit_flow(varied), literal(run.config, "      "));
    }
    source.set("source", Value::scalar(manifest.source_yaml, true));  // the config as it stood
    return yaml + emit_yaml(source);
}

PlanInForce::PlanInForce(const std::string& folder, Manifest& plan) : lock_((make_folders(folder), folder + "/manifest.lock")) {
    const std::string path = manifest_path(folder), yaml = manifest_yaml(plan);
    while (true) {
        const bool alone = lock_.try_alone();
        if (alone) {
            if (file_exists(path)) notes_ = changes(read_manifest(folder), plan);
            write_file_atomic(path, yaml);
        }
        lock_.share();                     // from here on nobody writes, but somebody may have meanwhile
        if (!file_exists(path)) continue;  // whoever was about to write it is gone
        if (read_file(path) == yaml) return;
        const Manifest there = read_manifest(folder);
        if (there.sweep_id == plan.sweep_id) {
            std::unordered_map<std::string, std::string> folders;
            for (const SweepRun& run : there.runs) folders[run.run_id] = run.folder;
            for (SweepRun& run : plan.runs)
                if (const auto found = folders.find(run.run_id); found != folders.end()) run.folder = found->second;
            return;
        }
        if (!alone)
            fail(ExitCode::usage,
                 "a sweep with another plan is at work in '{}' (since {}: {}); wait for its end, or give this one a name of its "
                 "own: name=…",
                 folder, there.created, there.command);
    }
}

bool has_manifest(const std::string& folder) { return file_exists(manifest_path(folder)); }

Manifest read_manifest(const std::string& folder) {
    const std::string path = manifest_path(folder);
    if (!file_exists(path)) fail(ExitCode::usage, "'{}' is no folder of a sweep: it holds no manifest.yaml", folder);
    return parse_manifest(path, read_file(path), folder);
}

Manifest parse_manifest(const std::string& path, const std::string& yaml, const std::string& folder) {
    const Value root = parse_yaml(path, yaml, std::numeric_limits<std::size_t>::max());  // as long as its plan
    const std::string& format = text_of(root, "format", path);
    if (format != manifest_format && format != older_format)
        fail(ExitCode::usage,
             "'{}' is a '{}'; this tool reads '{}' and writes it anew at the next `palimpsest sweep`, once that file is moved away",
             path, format, manifest_format);
    Manifest manifest;
    manifest.name = text_of(root, "name", path);
    manifest.sweep_id = text_of(root, "sweep_id", path);
    manifest.created = text_of(root, "created", path);
    manifest.command = text_of(root, "command", path);
    for (const Value& word : need(root, "overrides", Value::Kind::list, path).items) manifest.overrides.push_back(word.text);
    if (const Value* source = root.find("source")) manifest.source_yaml = source->text;
    for (const Value& item : need(root, "runs", Value::Kind::list, path).items) {
        SweepRun run;
        run.run_id = text_of(item, "id", path);
        run.folder = folder + "/" + folder_of_run(item, path);
        for (const Value::Entry& entry : need(item, "varied", Value::Kind::map, path).entries)
            run.varied.emplace_back(entry.key, entry.value.text);
        if (format == manifest_format) run.config = text_of(item, "config", path);
        manifest.runs.push_back(std::move(run));
    }
    return manifest;
}

Experiment planned_experiment(const std::string& path, const Manifest& manifest, const std::vector<std::string>& run_ids,
                              const Catalog& catalog) {
    Experiment experiment;
    experiment.name = manifest.name;
    experiment.overrides = manifest.overrides;
    experiment.source_yaml = manifest.source_yaml;
    experiment.is_sweep = true;
    for (const std::string& id : run_ids) {
        const auto planned =
            std::find_if(manifest.runs.begin(), manifest.runs.end(), [&](const SweepRun& run) { return run.run_id == id; });
        if (planned == manifest.runs.end()) fail(ExitCode::usage, "'{}' plans no run {}", path, id);
        if (planned->config.empty())
            fail(ExitCode::usage,
                 "'{}' is a '{}', which holds no whole configs; start the sweep anew: it writes a '{}' and goes on with its runs",
                 path, older_format, manifest_format);
        PlannedRun run = parse_experiment(path, planned->config, {}, catalog, {}).runs.front();
        if (run.spec.id != id)
            fail(ExitCode::usage,
                 "'{}' describes the run {} where it plans {}: was it edited, or written by another version? Start the sweep anew",
                 path, run.spec.id, id);
        run.varied = planned->varied;
        experiment.runs.push_back(std::move(run));
    }
    return experiment;
}

}  // namespace palimpsest
