#include "sweep/plan.h"

#include "config/schema_fields.h"
#include "core/error.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/text.h"
#include "core/time.h"

#include <algorithm>
#include <filesystem>

namespace palimpsest {
namespace {

constexpr const char* manifest_format = "palimpsest-manifest 1";

std::string manifest_path(const std::string& folder) { return folder + "/manifest.yaml"; }

// "[base_conv, delta]" -> "base_conv+delta", "[delta, delta]" -> "delta"
std::string compact(const std::string& text) {
    std::vector<std::string> words = {""};
    for (const char c : text) {
        if (c == ',') words.emplace_back();
        else if (std::string_view("[]{}\" ").find(c) == std::string_view::npos) words.back() += c == ':' ? '=' : c;
    }
    if (std::all_of(words.begin(), words.end(), [&](const std::string& word) { return word == words.front(); })) words.resize(1);
    return join(words, "+");
}

// A word tells what it is; a number needs its key.
bool explains_itself(const std::string& value) {
    const char c = value.empty() ? '0' : value[0];
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return letter && value != "true" && value != "false";
}

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

}  // namespace

std::string human_name(const PlannedRun& run) {
    std::vector<std::string> words;
    for (const auto& [key, value] : run.varied) {
        const std::string word = compact(value), last = key.substr(key.rfind('.') + 1);
        words.push_back(explains_itself(word) ? word : last + "=" + word);
    }
    if (words.empty()) {
        std::vector<std::string> mixers;
        for (const std::string& mixer : run.spec.model.mixers_by_layer())
            if (std::find(mixers.begin(), mixers.end(), mixer) == mixers.end()) mixers.push_back(mixer);
        words = {run.spec.task.name, join(mixers, "+")};
    }
    return join(words, "-");
}

std::string sweep_folder(const std::string& results, const std::string& experiment) { return results + "/" + experiment; }

std::string run_folder(const std::string& results, const std::string& experiment, const PlannedRun& run) {
    return sweep_folder(results, experiment) + "/" + run_folder_name(run.spec.id, human_name(run));
}

std::string varied_text(const std::vector<std::pair<std::string, std::string>>& varied) {
    std::vector<std::string> words;
    for (const auto& [key, value] : varied) words.push_back(key + "=" + value);
    return join(words, " ");
}

std::string short_id(const std::string& run_id) { return run_id.substr(0, 8); }

std::string sweep_id(const Experiment& experiment) {
    std::vector<std::string> ids;
    for (const PlannedRun& run : experiment.runs) ids.push_back(run.spec.id);
    std::sort(ids.begin(), ids.end());
    return sha256_hex(join(ids, "\n")).substr(0, 12);
}

Decision decide(const RunFolder& folder) {
    const auto failure_text = [&](const char* verb) {
        const std::optional<RunFailure> failure = folder.failure();
        if (!failure) return std::string(verb);
        const std::string at = failure->step >= 0 ? fmt::format(" at step {}", failure->step) : "";
        const bool told = failure->reason != "interrupted" && failure->reason != "requeue";
        return fmt::format("{}{}{}", verb, at, told ? ": " + failure->message.substr(0, failure->message.find('\n')) : "");
    };
    switch (folder.state()) {
        case RunState::fresh: return {Action::start, ""};
        case RunState::finished: return {Action::skip, "finished"};
        case RunState::running: return {Action::leave, "running: " + folder.holder()};
        case RunState::interrupted: return {Action::resume, failure_text("interrupted")};
        case RunState::failed: return {Action::resume, failure_text("failed")};
        case RunState::lost: return {Action::resume, "its process is gone"};
    }
    return {};
}

const char* to_string(Action action) {
    switch (action) {
        case Action::start: return "start";
        case Action::resume: return "resume";
        case Action::skip: return "skip";
        case Action::leave: return "leave alone";
    }
    return "?";
}

std::string manifest_yaml(const Experiment& experiment, const std::string& results, const std::vector<std::string>& command) {
    Value manifest = Value::map();
    manifest.set("format", fields::write(std::string(manifest_format)));
    manifest.set("name", fields::write(experiment.name));
    manifest.set("sweep_id", Value::scalar(sweep_id(experiment), true));
    manifest.set("created", Value::scalar(now_utc(), true));
    manifest.set("command", fields::write(join(command, " ")));
    manifest.set("overrides", list_of(experiment.overrides));
    const Value& first = experiment.runs.front().spec.resolved;
    manifest.set("config", first);
    Value runs = Value::list();
    for (const PlannedRun& run : experiment.runs) {
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
    Manifest manifest;
    manifest.yaml = read_file(path);
    const Value root = parse_yaml(path, manifest.yaml);
    if (need(root, "format", Value::Kind::scalar, path).text != manifest_format)
        fail(ExitCode::usage, "'{}' is a '{}'; this tool reads '{}'", path, root.find("format")->text, manifest_format);
    manifest.name = need(root, "name", Value::Kind::scalar, path).text;
    manifest.sweep_id = need(root, "sweep_id", Value::Kind::scalar, path).text;
    for (const Value& item : need(root, "runs", Value::Kind::list, path).items) {
        SweepRun run;
        run.run_id = need(item, "id", Value::Kind::scalar, path).text;
        run.folder = folder + "/" + need(item, "folder", Value::Kind::scalar, path).text;
        for (const Value::Entry& entry : need(item, "varied", Value::Kind::map, path).entries) {
            run.varied.emplace_back(entry.key, entry.value.text);
            if (std::find(manifest.varied.begin(), manifest.varied.end(), entry.key) == manifest.varied.end()) manifest.varied.push_back(entry.key);
        }
        manifest.runs.push_back(std::move(run));
    }
    return manifest;
}

}  // namespace palimpsest
