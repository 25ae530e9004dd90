#include "cli/find.h"

#include "config/diagnostics.h"
#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "store/run_folder.h"
#include "store/run_reader.h"
#include "sweep/plan.h"

#include <cstdint>
#include <filesystem>
#include <optional>

namespace palimpsest::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_named = 10, shortest_id = 8, longest_id = 12;

// Returns the folder without a slash at its end, and "." and ".." by their real names, since a run's folder name tells its id.
std::string tidy(const std::string& folder) {
    fs::path path = (fs::path(folder) / "").lexically_normal().parent_path();
    if (path.empty() || path.filename() == "." || path.filename() == "..") path = fs::canonical(folder);
    return path.string();
}

Place::Kind kind_of(const std::string& folder) {
    if (has_manifest(folder)) return Place::Kind::sweep;
    return is_run_folder(folder) ? Place::Kind::run : Place::Kind::folder;
}

// Returns the own folder of a run behind a link such as `latest`, because that folder's name tells the id.
std::string behind_links(std::string folder) {
    for (int links = 0; links < 16 && fs::is_symlink(folder); ++links)
        folder = tidy((fs::path(folder).parent_path() / fs::read_symlink(folder)).string());
    return folder;
}

// Returns the folder of a name as seen from here or from the results. A folder of a run or sweep goes before one of that name only.
std::optional<Place> folder_named(const std::string& name, const std::string& results) {
    std::optional<Place> found;
    for (const std::string& folder : {name, results + "/" + name}) {
        if (name.empty() || !folder_exists(folder)) continue;
        Place place = {kind_of(folder), tidy(folder)};
        if (place.kind == Place::Kind::run) place.folder = behind_links(place.folder);
        if (place.kind != Place::Kind::folder) return place;
        if (!found) found = place;
    }
    return found;
}

bool has_id(const std::string& folder, const std::string& word) {
    const std::string id = id_in_name(folder);
    if (id.starts_with(word)) return true;
    if (!id.empty() && !word.starts_with(id)) return false;
    return word.find_first_not_of("0123456789abcdef") == std::string::npos && run_id_in(folder).starts_with(word);
}

}  // namespace

std::string id_in_name(const std::string& folder) {
    const std::string name = fs::path(folder).filename().string(), id = name.substr(0, name.find('-'));
    const bool hex = id.find_first_not_of("0123456789abcdef") == std::string::npos;
    return hex && id.size() >= shortest_id && id.size() <= longest_id ? id : "";
}

std::string name_of(const std::string& folder, const std::string& results) {
    const fs::path below =
        fs::path(folder).lexically_normal().lexically_relative((fs::path(results) / "").lexically_normal().parent_path());
    return below.empty() || *below.begin() == ".." || below == "." ? folder : below.string();
}

Place find_place(const std::string& name, const std::string& results) {
    if (const std::optional<Place> place = folder_named(name, results)) return *place;
    if (!folder_exists(results)) fail(ExitCode::usage, "no folder '{}', and there are no results in '{}'", name, results);
    std::vector<std::string> found, exact, known = list_folders(results);
    for (const std::string& folder : find_run_folders(results)) {
        const std::string path = name_of(folder, results), last = fs::path(folder).filename().string();
        known.push_back(last);
        if (!name.empty() && (last.starts_with(name) || path.starts_with(name) || has_id(folder, name))) found.push_back(folder);
        if (last == name) exact.push_back(folder);  // "…-seed=1" also begins "…-seed=10"
    }
    if (exact.size() == 1) found = exact;
    if (found.size() == 1) return {Place::Kind::run, found.front()};
    if (found.empty())
        fail(ExitCode::usage,
             "no folder '{}', and no sweep or run of that name in '{}'{}\n`palimpsest ls --results {}` lists what is there", name,
             results, did_you_mean(name, known), shell_line({results}));
    fail(ExitCode::usage, "'{}' may be any of {} runs: {}", name, found.size(), join_some(found, most_named));
}

std::string find_run(const std::string& name, const std::string& results) {
    const Place place = find_place(name, results);
    if (place.kind == Place::Kind::run) return place.folder;
    const std::vector<std::string> runs = find_run_folders(place.folder);
    if (runs.size() == 1) return runs.front();
    if (runs.empty()) fail(ExitCode::usage, "'{}' is no folder of a run, and holds none", place.folder);
    const auto count = static_cast<std::int64_t>(runs.size());
    fail(ExitCode::usage, "'{}' is {}, not one of them; `palimpsest ls {}` lists them, `palimpsest compare {}` compares them", name,
         place.kind == Place::Kind::sweep ? fmt::format("a sweep of {}", plural(count, "run"))
                                          : fmt::format("a folder of {}", plural(count, "run")),
         shell_line({place.folder}), shell_line({place.folder}));
}

}  // namespace palimpsest::cli
