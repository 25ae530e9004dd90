#include "cli/select.h"

#include "cli/output.h"
#include "cli/path_option.h"
#include "config/diagnostics.h"
#include "core/error.h"
#include "core/file.h"
#include "core/log.h"
#include "core/text.h"
#include "sweep/plan.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

namespace palimpsest::cli {
namespace {

namespace fs = std::filesystem;

struct Found {
    std::string folder;
    std::vector<CollectedRun> runs;
    std::vector<std::string> swept;
};

bool is_run(const std::string& folder) { return file_exists(folder + "/run.h5") || (file_exists(folder + "/config.yaml") && !has_manifest(folder)); }

// The folder of a sweep, of a run, or of any results.
std::string folder_of(const std::string& name, const std::string& results) {
    for (const std::string& folder : {name, results + "/" + name}) {
        if (!name.empty() && folder_exists(folder)) return (fs::path(folder) / "").lexically_normal().parent_path().string();
    }
    const std::vector<std::string> known = folder_exists(results) ? list_folders(results) : std::vector<std::string>{};
    if (!name.empty() && folder_exists(results)) {
        for (const std::string& folder : run_folders(results)) {
            if (fs::path(folder).filename().string().starts_with(name)) return find_run(name, results);
        }
    }
    fail(ExitCode::usage, "no folder '{}', and no sweep of that name in '{}'{}", name, results, did_you_mean(name, known));
}

Found find(const std::string& name, const std::string& results) {
    Found found;
    found.folder = folder_of(name, results);
    if (has_manifest(found.folder)) {
        const Manifest manifest = read_manifest(found.folder);
        found.runs = collect(manifest.runs);
        found.swept = manifest.varied;
        return found;
    }
    std::vector<SweepRun> runs;
    if (is_run(found.folder)) runs.push_back({"", found.folder, {}});
    else
        for (const std::string& folder : run_folders(found.folder)) runs.push_back({"", folder, {}});
    if (runs.empty()) fail(ExitCode::usage, "no runs in '{}'", found.folder);
    found.runs = collect(runs);
    for (CollectedRun& run : found.runs) run.run.run_id = run.record.run_id;
    return found;
}

// The last part of each folder, or the whole of it where that would not tell them apart.
std::vector<std::string> short_names(const std::vector<Found>& all) {
    std::vector<std::string> names;
    for (const Found& found : all) names.push_back(fs::path(found.folder).filename().string());
    const bool distinct = std::set<std::string>(names.begin(), names.end()).size() == names.size();
    for (std::size_t i = 0; i < names.size() && !distinct; ++i) names[i] = all[i].folder;
    return names;
}

}  // namespace

void add_select(CLI::App& verb, SelectArguments& arguments) {
    verb.add_option("SWEEP", arguments.names, "folders of sweeps or runs, their names below the results, or beginnings of run ids")->required();
    verb.add_option("--where", arguments.where, "only runs with key=value or key=value,value; may be repeated")->allow_extra_args(false);
    add_path(verb, "--results", arguments.results, "where to look for a name");
}

Selection select_runs(const SelectArguments& arguments) {
    std::vector<Found> all;
    for (const std::string& name : arguments.names) all.push_back(find(name, arguments.results));
    const std::vector<std::string> names = short_names(all);
    Selection selection;
    std::vector<std::string> swept;
    for (std::size_t i = 0; i < all.size(); ++i) {
        for (const std::string& key : all[i].swept)
            if (std::find(swept.begin(), swept.end(), key) == swept.end()) swept.push_back(key);
        for (CollectedRun& run : all[i].runs) {
            if (all.size() > 1) run.run.varied.emplace_back("sweep", names[i]);
            selection.runs.push_back(std::move(run));
        }
    }
    for (const std::string& where : arguments.where) selection.runs = filter(selection.runs, where);
    for (const CollectedRun& run : selection.runs)
        if (!run.present && run.state != RunState::fresh) log_warning("{}", run.problem);
    selection.keys = differing_keys(selection.runs, swept);
    std::map<std::string, std::set<std::string>> sweeps;
    for (const CollectedRun& run : selection.runs) sweeps[run.run.run_id].insert(value_of(run, "sweep"));
    for (const auto& [id, in] : sweeps)
        if (in.size() > 1 && !id.empty()) selection.repeated.push_back(id);  // without one: a file that cannot be read
    if (!selection.repeated.empty()) selection.keys.insert(selection.keys.begin(), "sweep");
    return selection;
}

void count_once(Selection& selection, const std::vector<std::string>& by) {
    if (selection.repeated.empty() || std::find(by.begin(), by.end(), "sweep") != by.end()) return;
    std::set<std::string> seen;
    std::erase_if(selection.runs, [&](const CollectedRun& run) { return !run.run.run_id.empty() && !seen.insert(run.run.run_id).second; });
    log_info("note: {} in several of these sweeps; each counts once, as the first has it (--by sweep,… tells them apart)",
             selection.repeated.size() == 1 ? "1 run is" : fmt::format("{} runs are", selection.repeated.size()));
}

}  // namespace palimpsest::cli
