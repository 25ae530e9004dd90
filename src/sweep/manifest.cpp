// The frozen plan of a sweep: how it is written, replaced, and read again.
#include "config/schema_fields.h"
#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "core/time.h"
#include "sweep/plan.h"

#include <algorithm>
#include <filesystem>

namespace palimpsest {
namespace {

constexpr const char* manifest_format = "palimpsest-manifest 1";

std::string manifest_path(const std::string& folder) { return folder + "/manifest.yaml"; }

// What `other` has that differs from `base`, as dotted keys with whole values. Maps of other keys are taken whole.
void differences(const Value& base, const Value& other, const std::string& path, Value& out) {
    if (base.same_content(other)) return;
    const auto same_keys = [&] {
        return base.entries.size() == other.entries.size() &&
               std::all_of(base.entries.begin(), base.entries.end(), [&](const Value::Entry& e) { return other.find(e.key) != nullptr; });
    };
    if (base.kind != Value::Kind::map || other.kind != Value::Kind::map || !same_keys()) {
        out.set(path, other);
        return;
    }
    for (const Value::Entry& entry : other.entries)
        differences(*base.find(entry.key), entry.value, path.empty() ? entry.key : path + "." + entry.key, out);
}

Value list_of(const std::vector<std::string>& words) {
    Value list = Value::list();
    for (const std::string& word : words) list.items.push_back(fields::write(word));
    return list;
}

const Value& need(const Value& map, const char* key, Value::Kind kind, const std::string& path) {
    const Value* value = map.find(key);
    if (value == nullptr || value->kind != kind) fail(ExitCode::usage, "'{}' is no manifest of this tool: no '{}'", path, key);
    return *value;
}

Value parse_root(const std::string& path, const std::string& yaml) {
    Value root = parse_yaml(path, yaml);
    if (const std::string& format = need(root, "format", Value::Kind::scalar, path).text; format != manifest_format)
        fail(ExitCode::usage, "'{}' is a '{}'; this tool reads '{}'", path, format, manifest_format);
    return root;
}

std::vector<std::pair<std::string, std::string>> varied_of(const Value& item, const std::string& path) {
    std::vector<std::pair<std::string, std::string>> varied;
    for (const Value::Entry& entry : need(item, "varied", Value::Kind::map, path).entries) varied.emplace_back(entry.key, entry.value.text);
    return varied;
}

// The inverse of `differences`.
Value with_changes(Value config, const Value& changes, const std::string& path) {
    for (const Value::Entry& change : changes.entries) {
        Value* place = &config;
        std::string key = change.key;
        for (std::size_t dot = key.find('.'); dot != std::string::npos; dot = key.find('.')) {
            place = place->find(key.substr(0, dot));
            if (place == nullptr) fail(ExitCode::usage, "'{}' changes '{}', which its config has not", path, change.key);
            key.erase(0, dot + 1);
        }
        place->set(key, change.value);
    }
    return config;
}

// A carriage return would not survive the quotes of YAML.
std::string with_line_feeds(std::string text) {
    std::erase(text, '\r');
    return text;
}

}  // namespace

std::string manifest_yaml(const Experiment& experiment, const std::string& results, const std::vector<std::string>& command,
                          const std::vector<std::size_t>& only) {
    Value manifest = Value::map();
    manifest.set("format", fields::write(std::string(manifest_format)));
    manifest.set("name", fields::write(experiment.name));
    manifest.set("sweep_id", Value::scalar(sweep_id(experiment), true));
    manifest.set("created", Value::scalar(now_utc(), true));
    manifest.set("command", fields::write(shell_line(command)));
    manifest.set("overrides", list_of(experiment.overrides));
    const Value& first = experiment.runs.front().spec.resolved;
    manifest.set("config", first);
    Value runs = Value::list();
    for (std::size_t i = 0; i < experiment.runs.size(); ++i) {
        if (!only.empty() && std::find(only.begin(), only.end(), i) == only.end()) continue;
        const PlannedRun& run = experiment.runs[i];
        Value entry = Value::map(), varied = Value::map(), changes = Value::map();
        for (const auto& [key, value] : run.varied) varied.set(key, Value::scalar(value, true));
        differences(first, run.spec.resolved, "", changes);
        const std::filesystem::path folder = run_folder(results, experiment.name, run);
        entry.set("id", Value::scalar(run.spec.id, true));
        entry.set("folder", Value::scalar(folder.filename().string(), true));
        entry.set("varied", std::move(varied));
        entry.set("changes", std::move(changes));  // to `config` above
        runs.items.push_back(std::move(entry));
    }
    manifest.set("runs", std::move(runs));
    manifest.set("source", Value::scalar(with_line_feeds(experiment.source_yaml), true));  // the config as it stood
    return emit_yaml(manifest);
}

std::vector<std::string> freeze_manifest(const std::string& folder, const std::string& yaml) {
    make_folders(folder);
    const std::string path = manifest_path(folder);
    if (create_file(path, yaml)) return {};
    const Manifest old = read_manifest(folder);
    write_file_atomic(path, yaml);
    const Manifest fresh = read_manifest(folder);
    if (old.sweep_id == fresh.sweep_id) return {};
    const auto missing_in = [](const Manifest& in, const Manifest& from) {
        std::vector<std::string> gone;
        for (const SweepRun& run : from.runs) {
            const auto same = [&](const SweepRun& other) { return other.run_id == run.run_id; };
            if (std::none_of(in.runs.begin(), in.runs.end(), same))
                gone.push_back(run.varied.empty() ? short_id(run.run_id) : fmt::format("{} ({})", short_id(run.run_id), varied_text(run.varied)));
        }
        return gone;
    };
    std::vector<std::string> notes;
    constexpr std::size_t most = 5;
    const auto note = [&](std::vector<std::string> names, const char* what) {
        if (names.empty()) return;
        const std::size_t count = names.size();
        if (count > most) {
            names.resize(most);
            names.push_back("…");
        }
        notes.push_back(fmt::format("the plan has changed since last time: {} {}: {}", plural(static_cast<std::int64_t>(count), "run"), what, join(names, ", ")));
    };
    note(missing_in(old, fresh), "new");
    note(missing_in(fresh, old), "no longer planned (folders stay)");
    return notes;
}

bool has_manifest(const std::string& folder) { return file_exists(manifest_path(folder)); }

Manifest read_manifest(const std::string& folder) {
    const std::string path = manifest_path(folder);
    if (!file_exists(path)) fail(ExitCode::usage, "'{}' is no folder of a sweep: it holds no manifest.yaml", folder);
    return parse_manifest(path, read_file(path), folder);
}

Manifest parse_manifest(const std::string& path, const std::string& yaml, const std::string& folder) {
    Manifest manifest;
    manifest.yaml = yaml;
    const Value root = parse_root(path, yaml);
    manifest.name = need(root, "name", Value::Kind::scalar, path).text;
    manifest.sweep_id = need(root, "sweep_id", Value::Kind::scalar, path).text;
    manifest.command = need(root, "command", Value::Kind::scalar, path).text;
    for (const Value& item : need(root, "runs", Value::Kind::list, path).items) {
        SweepRun run;
        run.run_id = need(item, "id", Value::Kind::scalar, path).text;
        run.folder = folder + "/" + need(item, "folder", Value::Kind::scalar, path).text;
        run.varied = varied_of(item, path);
        for (const auto& [key, value] : run.varied)
            if (std::find(manifest.varied.begin(), manifest.varied.end(), key) == manifest.varied.end()) manifest.varied.push_back(key);
        manifest.runs.push_back(std::move(run));
    }
    return manifest;
}

Experiment planned_experiment(const std::string& path, const std::string& yaml, const std::vector<std::string>& run_ids, const Catalog& catalog) {
    const Value root = parse_root(path, yaml);
    Experiment experiment;
    experiment.name = need(root, "name", Value::Kind::scalar, path).text;
    for (const Value& word : need(root, "overrides", Value::Kind::list, path).items) experiment.overrides.push_back(word.text);
    if (const Value* source = root.find("source")) experiment.source_yaml = source->text;
    experiment.is_sweep = true;
    const Value& config = need(root, "config", Value::Kind::map, path);
    const std::vector<Value>& items = need(root, "runs", Value::Kind::list, path).items;
    for (const std::string& id : run_ids) {
        const auto item = std::find_if(items.begin(), items.end(),
                                       [&](const Value& entry) { return need(entry, "id", Value::Kind::scalar, path).text == id; });
        if (item == items.end()) fail(ExitCode::usage, "'{}' plans no run {}", path, id);
        const Value resolved = with_changes(config, need(*item, "changes", Value::Kind::map, path), path);
        PlannedRun run = parse_experiment(path, emit_yaml(resolved), {}, catalog, {}).runs.front();
        if (run.spec.id != id)
            fail(ExitCode::usage, "'{}' describes the run {} where it plans {}: was it edited, or written by another version? Start the sweep anew",
                 path, run.spec.id, id);
        run.varied = varied_of(*item, path);
        experiment.runs.push_back(std::move(run));
    }
    return experiment;
}

}  // namespace palimpsest
