#include "cli/select.h"

#include "cli/find.h"
#include "cli/path_option.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "sweep/plan.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <set>

namespace palimpsest::cli {
namespace {

namespace fs = std::filesystem;

struct Found {
    Place place;
    fs::path real;     // behind all links
    std::string name;  // tells the place from the others that were named
};

// Names each folder by its last part, or by the whole path where last parts are equal.
void name_shortly(std::vector<Found>& all) {
    std::set<std::string> names;
    for (Found& found : all) names.insert(found.name = fs::path(found.place.folder).filename().string());
    if (names.size() == all.size()) return;
    for (Found& found : all) found.name = found.place.folder;
}

std::vector<Found> find_all(const SelectArguments& arguments) {
    std::vector<Found> all;
    for (const std::string& name : arguments.names) {
        Found found;
        found.place = find_place(name, arguments.results);
        found.real = fs::canonical(found.place.folder);
        const bool known = std::any_of(all.begin(), all.end(), [&](const Found& other) { return other.real == found.real; });
        if (known) log_info("note: '{}' is named twice; it counts once", found.place.folder);
        else all.push_back(std::move(found));
    }
    name_shortly(all);
    return all;
}

std::vector<SweepRun> runs_of(const Place& place) {
    if (place.kind == Place::Kind::sweep) return read_manifest(place.folder).runs;
    std::vector<SweepRun> runs;
    for (const std::string& folder : find_run_folders(place.folder)) runs.push_back({"", folder, {}});
    if (runs.empty()) fail(ExitCode::usage, "no runs in '{}'", place.folder);
    return runs;
}

// Tells of runs in a sweep's folder that its plan does not name: those of an earlier config, or started alone.
void tell_others(const Found& found, const std::vector<SweepRun>& planned) {
    if (found.place.kind != Place::Kind::sweep) return;
    std::set<fs::path> known;
    for (const SweepRun& run : planned) known.insert(fs::path(run.folder).filename());
    std::int64_t others = 0;
    for (const std::string& folder : find_run_folders(found.place.folder)) {
        const fs::path path(folder);
        others += path.parent_path() == fs::path(found.place.folder) && known.count(path.filename()) == 0;
    }
    if (others > 0)
        log_info("note: {} in '{}' {} not in its plan and left out; `palimpsest ls {}` lists all", plural(others, "run"),
                 found.place.folder, others == 1 ? "is" : "are", shell_line({found.place.folder}));
}

// Returns where a run stands: the name of its sweep, or the folder above it, as seen from the folder that was named.
std::string sweep_of(const Found& found, const SweepRun& run, bool alone) {
    if (found.place.kind != Place::Kind::folder) return found.name;
    const std::string above = fs::path(run.folder).parent_path().lexically_relative(found.place.folder).string();
    if (above.empty() || above == ".") return found.name;
    return alone ? above : found.name + "/" + above;
}

}  // namespace

void add_select(CLI::App& verb, SelectArguments& arguments) {
    verb.add_option("SWEEP", arguments.names, "folders of sweeps or runs, their names below the results, or beginnings of run ids")
        ->required();
    verb.add_option("--where", arguments.where, "only runs with key=value or key=value,value; may be repeated")
        ->allow_extra_args(false);
    add_path(verb, "--results", arguments.results, "where to look for a name");
}

Selection select_runs(const SelectArguments& arguments, RunParts parts) {
    const std::vector<Found> all = find_all(arguments);
    Selection selection;
    std::set<fs::path> reached;
    std::int64_t again = 0;
    for (const Found& found : all) {
        std::vector<SweepRun> runs = runs_of(found.place);
        tell_others(found, runs);
        for (const std::string& key : swept_keys(runs))
            if (!contains(selection.swept, key)) selection.swept.push_back(key);
        const auto is_known = [&](const SweepRun& run) {
            std::error_code missing;
            const fs::path real = fs::canonical(run.folder, missing);
            return !missing && !reached.insert(real).second;
        };
        again += static_cast<std::int64_t>(std::erase_if(runs, is_known));
        for (CollectedRun& run : collect(runs, parts)) {
            if (run.run.run_id.empty()) run.run.run_id = run.record.run_id;
            run.sweep = sweep_of(found, run.run, all.size() == 1);
            selection.runs.push_back(std::move(run));
        }
    }
    const std::string are = again == 1 ? "1 run is" : fmt::format("{} runs are", again);
    if (again > 0) log_info("note: {} reached by several of these names; each counts once", are);
    for (const std::string& where : arguments.where) selection.runs = filter(selection.runs, where);
    for (const CollectedRun& run : selection.runs)
        if (!run.present && run.state != RunState::fresh) log_warning("{}", run.problem);
    selection.keys = differing_keys(selection.runs, selection.swept);
    selection.copies = find_copies(selection.runs);
    if (selection.copies.runs > 0 && all.size() > 1) selection.keys.insert(selection.keys.begin(), "sweep");
    return selection;
}

void count_once(Selection& selection, const std::vector<std::string>& by, const char* option) {
    const Copies& copies = selection.copies;
    if (copies.runs == 0) return;
    const bool by_sweep = contains(by, "sweep");
    const std::size_t before = selection.runs.size();
    selection.runs = each_once(std::move(selection.runs), by_sweep);
    const std::string are = copies.runs == 1 ? "1 run is" : fmt::format("{} runs are", copies.runs);
    const std::string differ = copies.different > 0 ? fmt::format("; {} of them with other results in each", copies.different) : "";
    const std::string counts = selection.runs.size() == before ? "each counts in each of its sweeps"
                               : by_sweep                      ? "each counts once in a sweep"
                                          : fmt::format("each counts once ({} sweep,… tells them apart)", option);
    log_info("note: {} there more than once, such as {} in '{}' and '{}'{}; {}", are, short_id(copies.id), copies.folder,
             copies.other, differ, counts);
}

}  // namespace palimpsest::cli
